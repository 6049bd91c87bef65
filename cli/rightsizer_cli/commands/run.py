"""`rightsizer run`."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TrainingPlan manifest.")],
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Workers to start; default: the plan's size on this machine."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Where the run is kept; default: runs/NAME. Run again to resume."
        ),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Start even if the deadline cannot be met here.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Set an earlier run in the same place aside and start over.")
    ] = False,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure this machine again instead of reading the cached figures."),
    ] = False,
    resize_after: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Measure a size at least this long before resizing (elasticity.mode). Default: 10m, or the"
            " plan's first look.",
        ),
    ] = None,
) -> int:
    """Size a plan to this machine, train it here with torchrun, and report predicted against measured."""
    from rightsizer_engine.units import parse_duration_s
    from rightsizer_local.run import (
        Options,
    )
    from rightsizer_local.run import (
        run as run_here,
    )

    options = Options(
        workers=workers,
        directory=directory,
        anyway=anyway,
        fresh=fresh,
        measure=measure,
        resize_after_s=None
        if resize_after is None
        else parse_duration_s(resize_after, field="--resize-after"),
    )
    return run_here(file, options)
