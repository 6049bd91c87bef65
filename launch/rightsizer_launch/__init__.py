"""Starting training: torchrun argv, framework flags, runs on this machine, the in-job agent. Import its modules."""

__all__: list[str] = []
