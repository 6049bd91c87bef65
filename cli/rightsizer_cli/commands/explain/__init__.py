"""`rightsizer explain`."""

__all__: list[str] = []
