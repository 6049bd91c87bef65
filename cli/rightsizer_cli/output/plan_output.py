"""The output of `plan` and `explain`: tables for people, the report for programs, the manifest to keep."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import typer

from rightsizer_api import dump, reporting
from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.search.types import NoPlan, Plan
from rightsizer_engine.values import immutable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rightsizer_api import PlanReport, TrainingPlan

_OUTPUTS = ("table", "json", "yaml")
_NO_COMMAND = """\
# This plan can be sized. To run it, name the training script (docs/stacks.md):
#   launch:
#     framework: transformers   # or another of `rightsizer frameworks`
#     command: [train.py]
#     image: registry.example/train:1   # on Kubernetes
"""


def check_output(kind: str) -> str:
    """One of the outputs, or an error that lists them."""
    if kind not in _OUTPUTS:
        raise OptionError("--output", value=kind, remedy=f"must be one of {', '.join(_OUTPUTS)}")
    return kind


@immutable
class Section:
    """More than the plan, on request: parts of the page, and keys of the JSON report."""

    parts: Sequence["RenderableType"] = ()
    document: Mapping[str, object] = field(default_factory=dict)


def print_result(
    result: Plan | NoPlan,
    *,
    as_json: bool,
    more: Sequence[Section] = (),
    document: "type[PlanReport] | None" = None,
) -> None:
    """Print the result as tables or as JSON: the report, or a `document` that adds the sections to it."""
    if as_json:
        report = reporting.report(result)
        added: dict[str, Any] = {key: value for section in more for key, value in section.document.items()}
        known: dict[str, Any] = {name: getattr(report, name) for name in type(report).model_fields}
        echo_json(report if document is None else document(**known, **added))
        return
    from rightsizer_cli.output.render import no_plan_page, plan_page

    show(*(plan_page(result) if isinstance(result, Plan) else no_plan_page(result)))
    show(*(part for section in more for part in section.parts))


def print_manifest(plan: "TrainingPlan") -> None:
    """The plan as a manifest that `run` and `kubectl apply` take. A comment says what it lacks to be run."""
    typer.echo(dump(plan), nl=False)
    if not plan.spec.launch.command:
        typer.echo(_NO_COMMAND, nl=False)
