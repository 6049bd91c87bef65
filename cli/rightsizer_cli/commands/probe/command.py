"""`rightsizer probe`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.exits import OK

__all__ = ["probe"]


def probe(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TrainingPlan manifest.")],
    time: Annotated[str, typer.Option(metavar="DURATION", help="Longest time, start-up included.")] = "5m",
    gpus: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="GPUs to measure on; default: the fewest that tell."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where the probe is kept; default: runs/NAME-probe."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the probe's TrainingPlan; run nothing.")
    ] = False,
) -> int:
    """Run a plan's own script for a few minutes on few GPUs, and size the plan by what was measured."""
    from rich.console import Console

    from rightsizer.units import parse_duration_s
    from rightsizer_cli.commands.probe.measure import ProbeOptions, run_probe
    from rightsizer_launch.local import machine
    from rightsizer_launch.local.probe import LocalProbe

    options = ProbeOptions(limit_s=parse_duration_s(time, field="--time"), gpus=gpus, dry_run=dry_run)
    console = Console(highlight=False)
    run_probe(
        file,
        options,
        executor=lambda: LocalProbe(here=machine.detect(), console=console, directory=directory),
        say=lambda text: console.print(text, soft_wrap=True, markup=False),
    )
    return OK
