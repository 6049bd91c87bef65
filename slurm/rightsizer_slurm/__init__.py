"""Slurm: the daemon that the submit plugins ask, `rightsizer sbatch`, the monitor."""
