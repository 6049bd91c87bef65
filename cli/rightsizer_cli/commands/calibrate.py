"""`rightsizer calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.commands.options import Json


def calibrate(
    *,
    reports: Annotated[
        list[Path] | None, typer.Argument(metavar="[REPORT.json]...", help="Reports of `rightsizer run`.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="A table of runs with step_time_s or peak_memory_gib measured."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show the calibration.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Delete the calibration.")] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Calibration file; default: $RIGHTSIZER_CALIBRATION, else your data folder."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Calibrate later plans with your own measured runs: corrected estimates, narrower intervals."""
    from rightsizer_cli.output.calibration import print_update
    from rightsizer_cli.requests.measured_runs import update_calibration
    from rightsizer_cli.requests.usage_errors import OptionError

    if sum([bool(reports) or runs is not None, show, reset]) != 1:
        remedy = "give exactly one of reports (or --runs), --show and --reset"
        raise OptionError("REPORT.json", value="", remedy=remedy)
    update = update_calibration(file, reports or (), runs, reset=reset)
    print_update(update, as_json=json)
