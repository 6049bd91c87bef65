"""A running job, for all executors: its records, sizes, readings, limits and measured times."""
