"""`rightsizer run`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["run"]


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TrainingPlan manifest.")],
) -> int:
    """Size a plan to this machine, train it here with torchrun, and report predicted against measured."""
    from rightsizer_api import load  # noqa: PLC0415
    from rightsizer_launch import local  # noqa: PLC0415

    return local.run(load(file))
