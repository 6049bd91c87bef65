"""`rightsizer slurm monitor`."""

from pathlib import Path
from typing import Annotated

import typer


def monitor(
    *,
    act: Annotated[
        str, typer.Option(metavar="LEVEL", help="The highest allowed action: flag, mail, shrink or requeue.")
    ] = "flag",
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="State file; open resizes continue after a restart (default: the daemon's, if you may write"
            " it, else one in ~/.local/state).",
        ),
    ] = None,
    every: Annotated[str, typer.Option(metavar="DURATION", help="Time between sweeps.")] = "30s",
    textfile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write metrics here, for the node exporter's textfile collector."),
    ] = None,
    prometheus: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Prometheus with the GPU metrics; without it only the jobs' own records count.",
        ),
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Bearer token for that Prometheus.")
    ] = None,
    annotate: Annotated[
        bool,
        typer.Option(
            "--annotate", help="Also write notices to AdminComment; needs a Slurm operator's rights."
        ),
    ] = False,
    backend: Annotated[str, typer.Option(metavar="NAME", help="auto, commands or pyslurm.")] = "auto",
    cool_down: Annotated[
        str, typer.Option(metavar="DURATION", help="The shortest time between two resizes of a job.")
    ] = "1h",
    warm_up: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a job trains before the first decision.")
    ] = "10m",
    window: Annotated[str, typer.Option(metavar="DURATION", help="The shortest measurement window.")] = "10m",
    sweeps: Annotated[int | None, typer.Option(metavar="N", min=1, help="End after N sweeps.")] = None,
) -> int:
    """Monitor the GPU jobs of a Slurm cluster: flag and, if --act allows it, resize them; never cancel."""
    from rightsizer_engine.errors import InputError
    from rightsizer_engine.units import parse_duration_s
    from rightsizer_launch.running.limits import Tuning
    from rightsizer_slurm.monitor.service import run
    from rightsizer_slurm.monitor.settings import BACKENDS, ActionLevel, MonitorOptions, MonitorSettings
    from rightsizer_slurm.state_file import default_path
    from rightsizer_telemetry.client import PrometheusSettings

    if act not in list(ActionLevel):
        raise InputError("--act", value=act, remedy=f"must be one of {', '.join(ActionLevel)}")
    if backend not in BACKENDS:
        raise InputError("--backend", value=backend, remedy=f"must be one of {', '.join(BACKENDS)}")
    tuning = Tuning(
        cool_down_s=parse_duration_s(cool_down, field="--cool-down"),
        warm_up_s=parse_duration_s(warm_up, field="--warm-up"),
        least_window_s=parse_duration_s(window, field="--window"),
    )
    settings = MonitorSettings(
        level=ActionLevel(act),
        every_s=parse_duration_s(every, field="--every"),
        annotate=annotate,
        tuning=tuning,
    )
    options = MonitorOptions(
        settings=settings,
        state=state or default_path(),
        backend=backend,
        prometheus=PrometheusSettings(url=prometheus, token_file=token_file) if prometheus else None,
        textfile=textfile,
        sweeps=sweeps,
    )
    return run(options)
