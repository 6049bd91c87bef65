"""`rightsizer simulate`."""

__all__: list[str] = []
