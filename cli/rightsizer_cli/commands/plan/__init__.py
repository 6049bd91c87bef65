"""`rightsizer plan`."""

__all__: list[str] = []
