"""Options that say which job `advise` looks at."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.commands.advise.logs import FASTEST_TOKENS_PER_S, SLOWEST_TOKENS_PER_S
from rightsizer_engine.values import immutable


@immutable
class JobSource:
    """Which job, and where its rate is."""

    kubernetes: Annotated[
        str, typer.Option(metavar="KIND/NAME", help="A Job, JobSet, TrainJob, PyTorchJob or RayJob.")
    ] = ""
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Default: your context's.")
    ] = ""
    context: Annotated[str, typer.Option(metavar="NAME", help="Context of your kubeconfig.")] = ""
    slurm: Annotated[int | None, typer.Option(metavar="JOBID", help="A running Slurm job.")] = None
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The job's log with its rate; - is stdin. Default: the pod's."),
    ] = None
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            min=SLOWEST_TOKENS_PER_S,
            max=FASTEST_TOKENS_PER_S,
            help="The whole job's rate, instead of a log.",
        ),
    ] = None
    tokens_done: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Tokens trained so far. Default: from the log.")
    ] = None
    measured_over: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the rate was measured.")
    ] = "1h"
    checkpoint_every: Annotated[str, typer.Option(metavar="DURATION", help="Between its checkpoints.")] = (
        "30m"
    )
