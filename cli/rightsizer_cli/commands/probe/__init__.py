"""`rightsizer probe`."""

__all__: list[str] = []
