"""`rightsizer slurm resize`."""

from pathlib import Path
from typing import Annotated

import typer


def resize(
    *,
    job: Annotated[int, typer.Argument(metavar="JOB", help="A job of rightsizer sbatch.")],
    nodes: Annotated[int, typer.Option("--nodes", "-N", metavar="N", min=1, help="The new number of nodes.")],
    requeue: Annotated[
        bool, typer.Option("--requeue", help="Save and requeue, even if the job could shrink live.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="State file (default: in ~/.local/state). Run the command again to continue."
        ),
    ] = None,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait for the resize.")] = "15m",
) -> int:
    """Change the number of nodes of a running elastic job, which saves and then continues."""
    from rightsizer_engine.units import parse_duration_s
    from rightsizer_slurm.monitor.manual_resize import resize as carry_out

    within_s = parse_duration_s(wait, field="--wait")
    return carry_out(job, nodes, requeue=requeue, state=state, within_s=within_s, say=typer.echo)
