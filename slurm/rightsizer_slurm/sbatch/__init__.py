"""`rightsizer sbatch` and `rightsizer probe --slurm`: they run as the user and write the job script."""
