"""`rightsizer slurm daemon`."""

from pathlib import Path
from typing import Annotated

import typer


def daemon(
    *,
    config: Annotated[
        Path, typer.Option(metavar="FILE", help="rightsizer.conf, shared with the Lua plugin.")
    ] = Path("/etc/slurm/rightsizer.conf"),
    monitor: Annotated[
        bool, typer.Option("--monitor", help="Also monitor the jobs, as section [monitor] of the file sets.")
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="Release the held jobs that may run unsized, and end.")
    ] = False,
) -> int:
    """Answer the submit plugins, and size the jobs that they hold. As root it switches to SlurmUser."""
    from rightsizer_slurm import daemon as process

    return process.release(config) if release else process.run(config, monitor=monitor)
