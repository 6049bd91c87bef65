"""What the Slurm daemon, plugins and monitor read from users."""

from bench.fuzz.inputs import Target

TARGETS: tuple[Target, ...] = ()
