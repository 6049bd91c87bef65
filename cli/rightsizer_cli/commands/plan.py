"""`rightsizer plan`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.commands.options import Json, NoCalibration, PlanFile, grouped
from rightsizer_cli.output.exits import NO_PLAN, OK
from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags


@grouped
def plan(
    *,
    file: PlanFile = None,
    job: JobFlags,
    goal: GoalFlags,
    hardware: HardwareFlags,
    layout: FixedLayoutFlags,
    json: Json = False,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="table|json|yaml", help="yaml: the manifest, to run or apply."
        ),
    ] = "table",
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw cost against time to FILE.svg, .png or .pdf."),
    ] = None,
    no_calibration: NoCalibration = False,
    compare_ownership: Annotated[
        bool, typer.Option("--compare-ownership", help="Also compare renting with buying; and give stages.")
    ] = False,
    own: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A figure of that comparison, such as years=5."),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="requests=RATE,...",
            help="Also the GPUs that serve the model: requests a second, input=, output= (tokens), bits=.",
        ),
    ] = None,
) -> int:
    """Find the fewest GPUs, and the layout, that finish in time."""
    from rightsizer_cli.output.figures import check_plot
    from rightsizer_cli.output.plan_figure import draw_plan
    from rightsizer_cli.output.plan_output import check_output, print_manifest
    from rightsizer_cli.output.plan_sections import print_plan
    from rightsizer_cli.requests.inputs import calibrated, read
    from rightsizer_cli.requests.plan_extras import demand
    from rightsizer_engine.search.size import size
    from rightsizer_engine.search.types import Plan

    kind = check_output("json" if json else output)
    if plot is not None:
        check_plot(plot)
    served = None if serve is None else demand(serve)
    wanted, request = read(file, job, goal, hardware, layout)
    result = size(calibrated(request, ignore=no_calibration))
    if plot is not None and isinstance(result, Plan):
        draw_plan(result, plot)
    elif plot is not None:
        typer.echo(f"--plot: there is no plan to draw; {plot} was not written", err=True)
    if kind == "yaml":
        print_manifest(wanted)
    else:
        owned = (own or ()) if compare_ownership or own else None
        print_plan(result, as_json=kind == "json", owned=owned, served=served)
    return OK if isinstance(result, Plan) else NO_PLAN
