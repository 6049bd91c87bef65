"""`rightsizer advise`."""

__all__: list[str] = []
