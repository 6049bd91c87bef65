"""The levers below a plan, or below the reason why there is none."""

from rich.console import Group
from rich.text import Text

from rightsizer_api.report import LeverReport
from rightsizer_cli.output.plan_output import Section
from rightsizer_engine.search.levers import Lever, lever_text, levers
from rightsizer_engine.search.types import NoPlan, Plan

_MOST_LINES = 5


def section(answer: Plan | NoPlan) -> Section:
    """The last part of the command's output, and `levers` of the JSON report."""
    found = levers(answer)
    title = "Levers: fewer GPUs or less money" if isinstance(answer, Plan) else "What would make it possible"
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
