"""`rightsizer slurm ...`."""

__all__: list[str] = []
