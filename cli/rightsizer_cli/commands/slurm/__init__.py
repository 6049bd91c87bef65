"""`rightsizer slurm ...`."""
