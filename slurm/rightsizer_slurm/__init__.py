"""Slurm: the daemon behind the submit plugins, `rightsizer sbatch`, the monitor."""
