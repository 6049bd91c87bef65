"""Options of several commands that set no field of a plan."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

NoCalibration = Annotated[
    bool,
    typer.Option(
        "--no-calibration", help="Ignore the calibration from your own runs (`rightsizer calibrate --show`)."
    ),
]

PlanFile = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="TrainingPlan manifest; options override its fields.")
]
