"""`rightsizer simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.commands.options import Json


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
        str | None,
        typer.Option(
            metavar="LOW:HIGH",
            help="If the trace has none: submitted + LOW to HIGH x duration; or none. Default: 0.5:1.5, 1:3.",
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="published, even, poor, or one exponent for all jobs. Default: the first three.",
        ),
    ] = None,
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
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw GPUs in use over time: .svg, .png or .pdf.")
    ] = None,
    json: Json = False,
) -> None:
    """Replay a job trace and compare right-sizing with static requests, null policies and a bound."""
    from rightsizer_cli.output.figures import check_plot
    from rightsizer_cli.output.replay import print_comparison
    from rightsizer_cli.requests.replays import compare, with_options
    from rightsizer_cli.requests.trace_jobs import (
        DEADLINES,
        SCALINGS,
        Draw,
        parse_deadlines,
        parse_scaling,
    )
    from rightsizer_cli.requests.traces import read_trace
    from rightsizer_engine.fleet.trace_jobs import ReplayRules
    from rightsizer_engine.units import parse_duration_s

    if plot is not None:
        check_plot(plot)
    ranges = DEADLINES if deadlines is None else (parse_deadlines(deadlines),)
    kinds = SCALINGS if scaling is None else (parse_scaling(scaling),)
    rules = with_options(
        ReplayRules(most_growth=most_growth),
        restart_s=parse_duration_s(restart, field="--restart"),
        cool_down_s=parse_duration_s(cool_down, field="--cool-down"),
    )
    jobs = read_trace(trace)
    if all(row.deadline_s is not None for row in jobs.rows):
        ranges = ranges[:1]  # nothing to draw
    draws = [Draw(seed=seed, deadlines=bounds, scaling=kind) for kind in kinds for bounds in ranges]
    comparison = compare(jobs, draws, rules, cluster_gpus)
    if plot is not None:
        from rightsizer_cli.output.replay_figure import draw_replay

        draw_replay(comparison, plot)
    print_comparison(comparison, as_json=json)
