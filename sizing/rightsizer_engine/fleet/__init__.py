"""Many jobs on one cluster: a job trace replayed under several policies."""
