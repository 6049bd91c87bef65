"""Many jobs on one cluster: GPU allocation, and a job trace replayed under the policy."""

__all__: list[str] = []
