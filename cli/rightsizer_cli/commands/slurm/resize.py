"""`rightsizer slurm resize`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["resize"]


def resize(
    *,
    job: Annotated[int, typer.Argument(metavar="JOB", help="A job of rightsizer sbatch.")],
    nodes: Annotated[int, typer.Option("--nodes", "-N", metavar="N", min=1, help="Nodes it shall have.")],
    requeue: Annotated[
        bool, typer.Option("--requeue", help="Save and start anew even where nodes could be taken live.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The journal; default: in ~/.local/state. Run again to go on."),
    ] = None,
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for it to be done.")
    ] = "15m",
) -> int:
    """Give a running elastic job another number of nodes; it saves first, and goes on from there."""
    from rightsizer.units import parse_duration_s
    from rightsizer_slurm.monitor.manual_resize import resize as carry_out

    within_s = parse_duration_s(wait, field="--wait")
    return carry_out(job, nodes, requeue=requeue, state=state, within_s=within_s, say=typer.echo)
