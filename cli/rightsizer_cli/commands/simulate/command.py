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
        typer.Argument(
            metavar="[TRACE.csv]", help="Jobs as CSV, plain or .gz; default: a sample that comes with it."
        ),
    ] = None,
    cluster_gpus: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="GPUs of the cluster; default: 1.5 x the busiest week's mean demand."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of all that is drawn.")] = 0,
    deadlines: Annotated[
        str,
        typer.Option(
            metavar="LOW:HIGH", help="Where the trace has none: submitted + LOW to HIGH x duration; or none."
        ),
    ] = "0.5:1.5",
    utilisation: Annotated[
        str,
        typer.Option(metavar="KIND", help="Where the trace has none: pai, philly, or a share for all."),
    ] = "pai",
    fixed_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Part of the time GPUs are not busy that more GPUs do not shorten.",
        ),
    ] = 1.0,
    most_growth: Annotated[
        float,
        typer.Option(metavar="TIMES", min=1.0, max=64.0, help="How far a job may grow beyond its request."),
    ] = 2.0,
    restart: Annotated[
        str, typer.Option(metavar="DURATION", help="What a resize takes, GPUs held: 5m.")
    ] = "5m",
    cool_down: Annotated[
        str, typer.Option(metavar="DURATION", help="Least time between two resizes of a job.")
    ] = "1h",
    on_pressure: Annotated[
        bool, typer.Option("--on-pressure", help="Shrink only while someone waits; default: always.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw GPUs in use over time: .svg or .png.")
    ] = None,
    json: Json = False,
) -> None:
    """Replay a trace of jobs: what resizing saves against static requests, and against an oracle."""
    from rightsizer.fleet.simulation import ReplayRules
    from rightsizer.resize.types import Pressure
    from rightsizer.units import parse_duration_s
    from rightsizer_cli.commands.plan.plot import check_plot
    from rightsizer_cli.commands.simulate.attributes import Draw, parse_deadlines, parse_utilisation
    from rightsizer_cli.commands.simulate.replays import print_replayed, replayed, report, with_options
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
    found = replayed(read_trace(trace), draw, rules, cluster_gpus)
    if plot is not None:
        from rightsizer_cli.commands.simulate.plot import draw_replay

        draw_replay(found, plot)
    if json:
        echo_json(report(found))
    else:
        print_replayed(found)
