"""`rightsizer sbatch`."""

from pathlib import Path
from typing import Annotated

import typer


def sbatch(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="TrainingPlan manifest, or a script with a comment for it.")
    ],
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTION]...", help="More options for sbatch, after --, as they are."),
    ] = None,
    partition: Annotated[
        str,
        typer.Option(
            "--partition", "-p", metavar="NAME", help="Only this partition. Default: any that fits."
        ),
    ] = "",
    account: Annotated[
        str, typer.Option("--account", "-A", metavar="NAME", help="Whom it is charged to.")
    ] = "",
    qos: Annotated[str, typer.Option("--qos", "-q", metavar="NAME", help="Quality of service.")] = "",
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", metavar="N", min=1, help="Most nodes it may take.")
    ] = None,
    time: Annotated[str, typer.Option(metavar="DURATION", help="Longest time limit: 12h, 3d.")] = "",
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Where the run is kept; default: runs/NAME. Submit again to resume."
        ),
    ] = None,
    python: Annotated[
        str, typer.Option(metavar="PATH", help="Python on the nodes that has rightsizer; default: this one.")
    ] = "",
    rendezvous: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="A rendezvous store kept elsewhere; default: the job's own."),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the batch script; submit nothing.")
    ] = False,
) -> int:
    """Size a plan to this Slurm cluster, write its batch script, submit it, and say what and why."""
    import sys

    from rightsizer_slurm.sbatch.command import SbatchOptions, submit

    options = SbatchOptions(
        partition=partition,
        account=account,
        qos=qos,
        nodes=nodes,
        time=time,
        directory=directory,
        python=python or sys.executable,
        rendezvous=rendezvous,
        dry_run=dry_run,
        more=tuple(more or ()),
    )
    return submit(file, options, say=typer.echo)
