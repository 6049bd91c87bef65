"""Frameworks as a table: what people call them, and what can be done with each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rightsizer_api.spec.launch import NEEDS_A_STAGE, READ_FROM_LOG_LINES
from rightsizer_cli.commands.catalog.listing import document, fields, values
from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.output.render import table
from rightsizer_engine.catalog.framework_names import also_called
from rightsizer_engine.domain.familiarity import measured
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.values import immutable
from rightsizer_launch.argv.frameworks import is_launched
from rightsizer_launch.stacks.catalog import resizes_in_place, stack_of

_METHODS = {"pretrain": "can_pretrain", "lora": "can_lora", "qlora": "can_qlora"}


@immutable
class KnownFramework(Framework):
    """A framework with its other names, what was measured of it, and what can be done with it."""

    also_called: tuple[str, ...]
    methods: tuple[str, ...]
    measured_sources: int
    measured_runs: int
    launch: str
    measured_by: str
    resize: str


def print_frameworks(profiles: Sequence[Framework], *, as_json: bool) -> None:
    """Frameworks with their names, and whether they are launched or sized only."""
    if as_json:
        echo_json([document(KnownFramework(**values(profile), **_known(profile))) for profile in profiles])
    elif len(profiles) == 1:
        show(fields(profiles[0], _known(profiles[0])))
    else:
        grid = table("framework", "also", "trains", ">sources", ">runs", "launch", "measured by", "resize")
        for profile in profiles:
            also, able = ", ".join(also_called(profile.name)), " ".join(_methods(profile))
            sources, runs = (str(count or "") for count in _measured(profile))
            ways = (_launch(profile), _observer(profile), _resize(profile))
            grid.add_row(profile.name, also, able, sources, runs, *ways)
        show(
            grid,
            "Sources and runs are the published ones behind the engine. Sized only: a plan's command states"
            " the layout by placeholders such as {layout.tp}. Any other script is custom. What a hook or"
            " log lines measure runs unmodified. Log lines neither save before a stop nor resume, so"
            " such a job is resized only if its command names {checkpoint.path}.",
        )


def _known(profile: Framework) -> dict[str, Any]:
    sources, runs = _measured(profile)
    return {
        "also_called": also_called(profile.name),
        "methods": _methods(profile),
        "measured_sources": sources,
        "measured_runs": runs,
        "launch": _launch(profile),
        "measured_by": _observer(profile),
        "resize": _resize(profile),
    }


def _methods(profile: Framework) -> tuple[str, ...]:
    return tuple(method for method, fact in _METHODS.items() if getattr(profile, fact))


def _measured(profile: Framework) -> tuple[int, int]:
    """Sources and runs of exactly this profile that measured step time."""
    table = measured()
    return table.count(np.array([runs.stack == profile.name for runs in table.runs]))


def _launch(profile: Framework) -> str:
    return "launched" if is_launched(profile.name) else "sized only"


def _observer(profile: Framework) -> str:
    """The reporter of a script's progress."""
    stack = stack_of(profile.name)
    return "agent" if stack is None else "hook" if stack.hooks else "log lines"


def _resize(profile: Framework) -> str:
    if profile.name in READ_FROM_LOG_LINES:
        return "if it can resume"
    if profile.name in NEEDS_A_STAGE:
        return "by restart, at a named ZeRO stage"
    return "in place" if resizes_in_place(profile.name) else "by restart"
