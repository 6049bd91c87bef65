"""`rightsizer slurm report`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    state: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The monitor's journal: tells what it did, if you may read it."),
    ] = Path("/var/lib/rightsizer/monitor.db"),
) -> int:
    """Tell of every GPU job that you may see: what it does, and what would be better. Changes nothing."""
    from rich.table import Table  # noqa: PLC0415  (slow to import)

    from rightsizer_cli.console import echo_json, show  # noqa: PLC0415
    from rightsizer_slurm import report as reports  # noqa: PLC0415
    from rightsizer_slurm.backend_commands import SlurmCommands  # noqa: PLC0415
    from rightsizer_slurm.commands import Slurm  # noqa: PLC0415
    from rightsizer_slurm.monitor import Settings  # noqa: PLC0415

    slurm = Slurm()
    found = reports.look(SlurmCommands(slurm), Settings(), slurm=slurm, state=state)
    if json:
        echo_json(reports.document(found))
        return 0
    table = Table(*reports.HEADINGS, box=None, pad_edge=False)
    for line in found.lines:
        table.add_row(*reports.row(line))
    show(found.words, *([table] if found.lines else []), *reports.told(found.intents))
    return 0
