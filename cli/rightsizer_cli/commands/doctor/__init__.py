"""`rightsizer doctor`."""

__all__: list[str] = []
