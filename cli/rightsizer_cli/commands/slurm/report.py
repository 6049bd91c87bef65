"""`rightsizer slurm report`."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The monitor's state file, for its last resizes (default: the daemon's, else yours);"
            " skipped if you cannot read it.",
        ),
    ] = None,
    prometheus: Annotated[str, typer.Option(metavar="URL", help="Prometheus with the GPU metrics.")] = "",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Bearer token for that Prometheus.")
    ] = None,
    warm_up: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a job trains before the first decision.")
    ] = "10m",
    window: Annotated[str, typer.Option(metavar="DURATION", help="The shortest measurement window.")] = "10m",
) -> int:
    """Print every GPU job that you may see: state, progress, recommended size. Changes nothing."""
    from rich.table import Table
    from rich.text import Text

    from rightsizer_api.untrusted_text import one_line
    from rightsizer_cli.output.console import echo_json, show
    from rightsizer_engine.units import parse_duration_s
    from rightsizer_launch.running.limits import Tuning
    from rightsizer_slurm.cluster.backend_commands import SlurmCommands
    from rightsizer_slurm.cluster.slurm_cli import Slurm
    from rightsizer_slurm.monitor import report as reports
    from rightsizer_slurm.monitor.settings import MonitorSettings
    from rightsizer_slurm.state_file import default_path
    from rightsizer_telemetry.client import PrometheusSettings

    slurm = Slurm()
    tuning = Tuning(
        warm_up_s=parse_duration_s(warm_up, field="--warm-up"),
        least_window_s=parse_duration_s(window, field="--window"),
    )
    access = PrometheusSettings(url=prometheus, token_file=token_file) if prometheus else None
    settings = MonitorSettings(tuning=tuning)
    result = reports.look(
        SlurmCommands(slurm), settings, slurm=slurm, state=state or default_path(), prometheus=access
    )
    if json:
        echo_json(reports.document(result))
        return 0
    table = Table(*reports.HEADINGS, box=None, pad_edge=False)
    for row in result.rows:
        table.add_row(*(Text(one_line(cell)) for cell in reports.table_row(row)))  # users' text: no markup
    resizes = (Text(one_line(line)) for line in reports.resize_lines(result.intents))
    show(result.summary, *([table] if result.rows else []), *resizes)
    return 0
