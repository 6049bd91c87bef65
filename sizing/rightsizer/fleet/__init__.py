"""Many jobs on one cluster: who gets how many GPUs, and a job trace replayed under the policy."""

__all__: list[str] = []
