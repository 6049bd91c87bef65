"""One sizer in bounded child processes, for the operator, the Slurm daemon and the page."""
