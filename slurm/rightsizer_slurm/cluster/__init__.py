"""Access to a Slurm cluster: commands and pyslurm, parsed into values; job comments and run files."""
