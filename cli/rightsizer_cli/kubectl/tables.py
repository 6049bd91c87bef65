"""Plans of a cluster as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rightsizer.units import format_count
from rightsizer_cli.kubectl.describe import condition, on_time, state_of

__all__ = ["conditions_table", "detail_page", "plans_table"]

Object = Mapping[str, Any]

_GOOD = ("Running", "Complete", "Finishing")
_BAD = ("Invalid", "NoPlan", "DeadlinePassed", "NoSuchGPUs", "InsufficientGPUs", "Refused", "Failed")


_WHOLE = ("Name", "State", "GPUs", "ETA (UTC)", "On time", "Condition", "Status", "Reason")


def _columns(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name in _WHOLE)
    return table


def _state(plan: Object) -> Text:
    state = state_of(plan)
    style = "green" if state in _GOOD else "red" if state in _BAD else "yellow"
    return Text(state or "New", style=style)


def plans_table(plans: Sequence[Object], *, namespaces: bool) -> RenderableType:
    """A line for each plan."""
    names = ("Name", "State", "GPUs", "Layout", "Done", "Tokens/s", "ETA (UTC)", "On time")
    table = _columns(*(("Namespace", *names) if namespaces else names))
    for plan in plans:
        status = plan.get("status", {})
        sizing, seen = status.get("sizing", {}), status.get("observed", {})
        cells: list[RenderableType] = [plan["metadata"]["namespace"]] if namespaces else []
        cells += [
            plan["metadata"]["name"],
            _state(plan),
            str(sizing.get("gpus", "")),
            sizing.get("layoutText", ""),
            f"{seen['progress']:.0%}" if "progress" in seen else "",
            format_count(seen["tokensPerSecond"]) if "tokensPerSecond" in seen else "",
            status.get("eta", "").replace("T", " ").removesuffix("Z")[:16],  # UTC, to the minute
            _judged(plan),
        ]
        table.add_row(*cells)
    return table


def _judged(plan: Object) -> Text:
    risk = condition(plan, "DeadlineAtRisk").get("status")
    if not plan.get("status", {}).get("deadline") or risk not in {"True", "False"}:
        return Text("")
    return Text("late", style="red") if risk == "True" else Text("yes", style="green")


def detail_page(plan: Object) -> list[RenderableType]:
    """One plan: its line, whether it is on time, its conditions, its changes of size."""
    parts: list[RenderableType] = [plans_table([plan], namespaces=True), Text(on_time(plan))]
    parts.append(conditions_table(plan))
    resizes = plan.get("status", {}).get("resizes", ())
    if resizes:
        table = _columns("At", "GPUs", "Layout", "Because")
        for each in resizes:
            gpus = f"{each.get('fromGPUs', '')} to {each.get('toGPUs', '')}"
            table.add_row(each["at"], gpus, each.get("toLayout", ""), each.get("reason", ""))
        parts.append(Group(Text("Changes of size", style="bold"), table))
    return parts


def conditions_table(plan: Object) -> RenderableType:
    """Every condition with its reason."""
    table = _columns("Condition", "Status", "Reason", "Message")
    for each in plan.get("status", {}).get("conditions", ()):
        table.add_row(each["type"], each["status"], each["reason"], Text(each.get("message", "")))
    return table
