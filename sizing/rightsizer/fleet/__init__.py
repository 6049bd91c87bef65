"""Many jobs on one cluster: a job trace replayed under several policies."""

__all__: list[str] = []
