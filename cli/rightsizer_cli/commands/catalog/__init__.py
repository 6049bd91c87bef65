"""`rightsizer models` and `rightsizer gpus`."""

__all__: list[str] = []
