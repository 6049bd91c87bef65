"""`rightsizer probe`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rightsizer_cli.output.exits import INTERRUPTED, OK

if TYPE_CHECKING:
    from collections.abc import Callable

    from rightsizer_launch.running.probe_run import Executor


def probe(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TrainingPlan manifest.")],
    time: Annotated[str, typer.Option(metavar="DURATION", help="Longest time, start-up included.")] = "5m",
    gpus: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="GPUs to measure on; default: the fewest that tell."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where the probe is kept; default: runs/NAME-probe."),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Run it as a Slurm job.")] = False,
    partition: Annotated[
        str, typer.Option("--partition", "-p", metavar="NAME", help="Slurm: only this partition.")
    ] = "",
    account: Annotated[
        str, typer.Option("--account", "-A", metavar="NAME", help="Slurm: whom it is charged to.")
    ] = "",
    qos: Annotated[str, typer.Option("--qos", "-q", metavar="NAME", help="Slurm: quality of service.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the probe's TrainingPlan; run nothing.")
    ] = False,
) -> int:
    """Run a plan's own script for a few minutes on few GPUs, and size the plan by what was measured."""
    import secrets

    from rightsizer_api import load
    from rightsizer_engine.units import parse_duration_s
    from rightsizer_launch.running.probe_run import ProbeOptions, run_probe

    options = ProbeOptions(
        limit_s=parse_duration_s(time, field="--time"),
        gpus=gpus,
        dry_run=dry_run,
        home=file.resolve().parent,
        tag=f"-{secrets.token_hex(2)}" if slurm else "",
    )
    executor = _slurm(directory, partition, account, qos) if slurm else _local(directory)
    done = run_probe(load(file), options, executor=executor, say=typer.echo)
    return OK if done else INTERRUPTED


def _local(directory: Path | None) -> "Callable[[], Executor]":
    from rich.console import Console

    from rightsizer_local import machine
    from rightsizer_local.probe import LocalProbe

    return lambda: LocalProbe(here=machine.detect(), console=Console(highlight=False), directory=directory)


def _slurm(directory: Path | None, partition: str, account: str, qos: str) -> "Callable[[], Executor]":
    from rightsizer_slurm.sbatch.command import SbatchOptions
    from rightsizer_slurm.sbatch.probe import SlurmProbe

    options = SbatchOptions(directory=directory, partition=partition, account=account, qos=qos)
    return lambda: SlurmProbe(options=options, say=typer.echo)
