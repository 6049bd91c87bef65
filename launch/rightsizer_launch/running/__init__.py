"""What every executor knows of a running job: its records, sizes, readings, limits and measured times."""
