"""`rightsizer slurm daemon`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["daemon"]


def daemon(
    *,
    config: Annotated[
        Path, typer.Option(metavar="FILE", help="rightsizer.conf, which the Lua plugin reads too.")
    ] = Path("/etc/slurm/rightsizer.conf"),
    monitor: Annotated[
        bool, typer.Option("--monitor", help="Watch the jobs too, as the file's section [monitor] says.")
    ] = False,
) -> int:
    """Answer the submit plugins, and size the jobs that they hold. Started by root it becomes SlurmUser."""
    from rightsizer_slurm.daemon import run

    return run(config, monitor=monitor)
