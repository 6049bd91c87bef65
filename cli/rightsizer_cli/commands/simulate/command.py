"""`rightsizer simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.options import Json

__all__ = ["simulate"]


def simulate(
    *,
    trace: Annotated[
        Path | None,
        typer.Argument(metavar="[TRACE.csv]", help="Jobs as CSV, plain or .gz; default: a bundled sample."),
    ] = None,
    cluster_gpus: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="GPUs of the cluster; default: 1.5 x the busiest week's mean demand."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of all random draws.")] = 0,
    deadlines: Annotated[
        str,
        typer.Option(
            metavar="LOW:HIGH", help="If the trace has none: submitted + LOW to HIGH x duration; or none."
        ),
    ] = "0.5:1.5",
    utilisation: Annotated[
        str,
        typer.Option(metavar="KIND", help="If the trace has none: pai, philly, or one share for all jobs."),
    ] = "pai",
    fixed_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Part of the GPUs' idle time that more GPUs do not shorten.",
        ),
    ] = 1.0,
    most_growth: Annotated[
        float,
        typer.Option(metavar="TIMES", min=1.0, max=64.0, help="Maximum GPUs as a multiple of the request."),
    ] = 2.0,
    restart: Annotated[
        str, typer.Option(metavar="DURATION", help="Duration of a resize; its GPUs are held: 5m.")
    ] = "5m",
    cool_down: Annotated[
        str, typer.Option(metavar="DURATION", help="Minimum time between two resizes of a job.")
    ] = "1h",
    on_pressure: Annotated[
        bool, typer.Option("--on-pressure", help="Shrink only while jobs wait; default: always.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw GPUs in use over time: .svg or .png.")
    ] = None,
    json: Json = False,
) -> None:
    """Replay a job trace and compare resizing with static requests and with an oracle."""
    from rightsizer.fleet.simulation import ReplayRules
    from rightsizer.resize.types import Pressure
    from rightsizer.units import parse_duration_s
    from rightsizer_cli.commands.plan.plot import check_plot
    from rightsizer_cli.commands.simulate.attributes import Draw, parse_deadlines, parse_utilisation
    from rightsizer_cli.commands.simulate.comparison import compare, print_comparison, report, with_options
    from rightsizer_cli.commands.simulate.traces import read_trace
    from rightsizer_cli.console import echo_json

    if plot is not None:
        check_plot(plot)
    draw = Draw(
        seed=seed,
        deadlines=parse_deadlines(deadlines),
        utilisation=parse_utilisation(utilisation),
        fixed_share=fixed_share,
    )
    rules = with_options(
        ReplayRules(most_growth=most_growth),
        restart_s=parse_duration_s(restart, field="--restart"),
        cool_down_s=parse_duration_s(cool_down, field="--cool-down"),
        pressure=Pressure.ON_PRESSURE if on_pressure else Pressure.ALWAYS,
    )
    comparison = compare(read_trace(trace), draw, rules, cluster_gpus)
    if plot is not None:
        from rightsizer_cli.commands.simulate.plot import draw_replay

        draw_replay(comparison, plot)
    if json:
        echo_json(report(comparison))
    else:
        print_comparison(comparison)
