"""`rightsizer schema`."""

__all__: list[str] = []
