"""`rightsizer estimate`."""

__all__: list[str] = []
