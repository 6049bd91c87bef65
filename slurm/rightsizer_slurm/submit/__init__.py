"""Sizing a job at submission: the daemon that the Lua plugins ask, and `rightsizer sbatch`."""

__all__: list[str] = []
