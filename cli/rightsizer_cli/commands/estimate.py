"""`rightsizer estimate`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.commands.options import Json, NoCalibration, PlanFile, grouped
from rightsizer_cli.output.exits import BAD_INPUT, OK
from rightsizer_cli.requests.flags import HardwareFlags, JobFlags, LayoutFlags


@grouped
def estimate(
    *,
    file: PlanFile = None,
    job: JobFlags,
    hardware: HardwareFlags,
    layout: LayoutFlags,
    json: Json = False,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Predict every row of a table of runs instead; needs --out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Where --runs writes its predictions.")
    ] = None,
    framework_unknown: Annotated[
        bool, typer.Option("--framework-unknown", help="With --runs: do not read the column framework.")
    ] = False,
    no_calibration: NoCalibration = False,
) -> int:
    """Predict time and memory of one given layout, or of every run in a table."""
    from rightsizer_cli.requests.usage_errors import OptionError

    if runs is None:
        from rightsizer_cli.output.estimate import print_estimate

        if out is not None or framework_unknown:
            raise OptionError("--out", value=str(out), remedy="belongs to --runs")
        print_estimate(file, job, hardware, layout, as_json=json, ignore=no_calibration)
        return OK
    from rightsizer_cli.output.predictions import estimate_runs

    if out is None:
        raise OptionError("--out", value="", remedy="name the file for the predictions of --runs")
    predicted, unsupported = estimate_runs(runs, out, framework_unknown=framework_unknown)
    typer.echo(f"{predicted} rows predicted, {unsupported} unsupported: {out}", err=True)
    return OK if predicted else BAD_INPUT
