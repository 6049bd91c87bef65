"""`rightsizer models`, `rightsizer gpus` and `rightsizer frameworks`."""

__all__: list[str] = []
