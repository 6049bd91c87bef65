"""A plan with the sections below it: ownership, levers, serving."""

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from rightsizer_api.report import LeverReport
from rightsizer_cli.output import ownership, serving
from rightsizer_cli.output.documents.plan import PlanDocument
from rightsizer_cli.output.plan_output import Section, print_result
from rightsizer_engine.search.levers import Lever, lever_text, levers
from rightsizer_engine.search.types import NoPlan, Plan
from rightsizer_engine.serving import Demand

_MOST_LINES = 5


def print_plan(
    result: Plan | NoPlan, *, as_json: bool, owned: Sequence[str] | None, served: Demand | None
) -> None:
    """Print a plan with its levers; `owned` and `served` add the tables of --own and of --serve."""
    sections = []
    if owned is not None and isinstance(result, Plan):
        sections.append(ownership.section(result, owned))
    sections.append(_levers(result))
    if served is not None:
        cluster = result.option.cluster if isinstance(result, Plan) else result.request.clusters[0]
        sections.append(serving.section(result.request.architecture, cluster, served))
    print_result(result, as_json=as_json, more=sections, document=PlanDocument)


def _levers(result: Plan | NoPlan) -> Section:
    """The levers below the plan, and `levers` of the JSON report."""
    found = levers(result)
    title = "Levers: fewer GPUs or less money" if isinstance(result, Plan) else "What would make it possible"
    lines = [Text(f"- {lever_text(lever)}") for lever in found[:_MOST_LINES]]
    parts = [Group(Text(title, style="bold"), *lines)] if lines else []
    return Section(parts=parts, document={"levers": tuple(_document(lever) for lever in found)})


def _document(lever: Lever) -> LeverReport:
    option = lever.option
    return LeverReport(
        change=lever.change,
        flag=lever.flag,
        worth=_rounded(lever.worth),
        gpus=option.gpus,
        gpu_type=option.cluster.gpu.name,
        finish_seconds=_rounded(option.finish_s),
        cost_usd=None if option.cost_usd is None else _rounded(option.cost_usd),
        gpus_saved=lever.gpus_saved,
        usd_saved=None if lever.usd_saved is None else _rounded(lever.usd_saved),
        later_seconds=_rounded(lever.later_s),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
