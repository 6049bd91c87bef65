"""The output of `explain`: the decision, figures by cause, and the sources of the constants."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.output.render import option_tables, request_line, table
from rightsizer_engine.estimate.parameters import Parameter, load_curves, load_memory, load_step_time
from rightsizer_engine.search.explain import explain
from rightsizer_engine.search.types import NoPlan, Plan

if TYPE_CHECKING:
    from rightsizer_cli.output.documents.explanation import ExplanationDocument


def print_explanation(result: Plan | NoPlan, *, as_json: bool) -> None:
    """Print why this plan was chosen, or why there is none."""
    if as_json:
        echo_json(_document(result))
        return
    explanation = explain(result)
    parts: list[RenderableType] = [Text(explanation.verdict, style="bold"), request_line(result.request)]
    parts += _list("Why", explanation.why)
    if isinstance(result, Plan):
        parts += option_tables(result.option)
        parts.append(Text(f"Measured like this: {explanation.evidence}"))
        parts.append(
            f"{result.layouts_evaluated:,} layouts were priced; the binding limit: {result.binding}."
        )
    parts += _list("Not chosen" if isinstance(result, Plan) else "Nearest", explanation.runners_up)
    parts += _list("Caveats", explanation.caveats)
    parts += [
        _constants(),
        "Formulas: docs/engine.md. Every constant with its source: rightsizer explain ... --json.",
    ]
    show(*parts)


def _list(title: str, lines: Iterable[str]) -> list[RenderableType]:
    items = [Text(f"- {line}") for line in lines]
    return [Group(Text(title, style="bold"), *items)] if items else []


def _constants() -> RenderableType:
    """One row per group of constants: their number, the data of the fit, its date."""
    grid = table("constants", ">number", "fitted on", "date")
    curves = load_curves()
    for name, parameters in (
        ("hardware", curves),
        ("step time", load_step_time()),
        ("memory", load_memory()),
    ):
        entries = [parameters.entry(key) for key in parameters if parameters is curves or key not in curves]
        fitted = sorted({e.fitted_on for e in entries if e.fitted_on}) or ["priors from the sources"]
        dates = sorted({e.date for e in entries if e.date})
        grid.add_row(name, str(len(entries)), "; ".join(fitted), dates[-1] if dates else "")
    return Group(Text("Where the constants come from", style="bold"), grid)


def _parameters() -> list[Parameter]:
    both = load_curves() | load_step_time() | load_memory()
    return [both.entry(name) for name in both]


def _document(result: Plan | NoPlan) -> "ExplanationDocument":
    from rightsizer_cli.output.documents.explanation import ExplanationDocument, ParameterDocument

    explanation = explain(result)
    return ExplanationDocument(
        verdict=explanation.verdict,
        why=explanation.why,
        evidence=explanation.evidence,
        binding=result.binding,
        runners_up=explanation.runners_up,
        caveats=explanation.caveats,
        layouts_evaluated=result.layouts_evaluated,
        parameters=tuple(
            ParameterDocument(
                name=constant.name,
                value=constant.value,
                unit=constant.unit,
                meaning=constant.meaning,
                source=constant.source,
                fitted_on=constant.fitted_on,
                date=constant.date,
            )
            for constant in _parameters()
        ),
    )
