"""The options that commands share: groups of flags (`requests.flags`), and those that set no field of a plan.

A command names a group as a parameter (`goal: GoalFlags`); `grouped` shows typer its fields instead.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from rightsizer_cli.requests.flags import Flag

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


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with each dataclass parameter replaced by that dataclass's fields."""
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters
    groups = {name: hints[name] for name in parameters if dataclasses.is_dataclass(hints[name])}

    @functools.wraps(command)
    def flat(**values: Any) -> Any:
        for name, group in groups.items():
            fields = [f.name for f in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})
        return command(**values)

    shown = [p for name in parameters for p in _parameters(name, hints[name], parameters[name].default)]
    flat.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    flat.__annotations__ = {p.name: p.annotation for p in shown}
    return flat


def _parameters(name: str, hint: Any, default: Any) -> list[inspect.Parameter]:
    """The parameter itself, or one for each field of a group."""
    if not dataclasses.is_dataclass(hint):
        return [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)]
    hints = get_type_hints(hint, include_extras=True)
    return [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=_default(f), annotation=_option(hints[f.name])
        )
        for f in dataclasses.fields(hint)
    ]


def _default(field: dataclasses.Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _option(hint: Any) -> Any:
    """The typer hint of a request's flag; an option of the command alone is unchanged."""
    kind, flag = get_args(hint)
    if not isinstance(flag, Flag):
        return hint
    option = typer.Option(
        *flag.names,
        metavar=flag.metavar,
        help=flag.help,
        min=flag.least,
        max=flag.most,
        autocompletion=flag.complete,
    )
    return Annotated[kind, option]
