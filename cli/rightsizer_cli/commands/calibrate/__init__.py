"""`rightsizer calibrate`."""

__all__: list[str] = []
