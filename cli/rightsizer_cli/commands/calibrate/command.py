"""`rightsizer calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.options import Json

__all__ = ["calibrate"]


def calibrate(
    *,
    reports: Annotated[
        list[Path] | None, typer.Argument(metavar="[REPORT.json]...", help="Reports of `rightsizer run`.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="A table of runs with step_time_s or peak_memory_gib measured."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what is kept.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Forget everything that is kept.")] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep it here; default: $RIGHTSIZER_CALIBRATION, else your data folder."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Learn from your own measured runs: later plans are corrected by them, and surer."""
    from rightsizer_cli.commands.calibrate.measured_runs import learn, print_learnt, where
    from rightsizer_cli.usage_errors import OptionError

    if sum([bool(reports) or runs is not None, show, reset]) != 1:
        remedy = "name reports (or --runs), or --show, or --reset: one of them"
        raise OptionError("REPORT.json", value="", remedy=remedy)
    found = learn(where(file), reports or (), runs, reset=reset)
    print_learnt(found, as_json=json)
