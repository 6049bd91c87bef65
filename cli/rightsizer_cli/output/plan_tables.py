"""Tables of the plans in a cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rightsizer_api.state import ConditionType, State
from rightsizer_cli.output.plan_state import on_time
from rightsizer_engine.units import format_count
from rightsizer_operator.kubectl.plans import condition, state_of

Object = Mapping[str, Any]

_UNWRAPPED = ("Name", "State", "GPUs", "ETA (UTC)", "On time", "Condition", "Status", "Reason")


def _columns(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name in _UNWRAPPED)
    return table


def _state(plan: Object) -> Text:
    text = state_of(plan)
    state = State.of(text)
    if state is None:
        return Text(text, style="yellow")
    failed = state.warns and not state.is_obstacle
    return Text(state, style="green" if state.is_good else "red" if failed else "yellow")


def plans_table(plans: Sequence[Object], *, namespaces: bool) -> RenderableType:
    """One row per plan."""
    names = ("Name", "State", "GPUs", "Layout", "Done", "Tokens/s", "ETA (UTC)", "On time")
    table = _columns(*(("Namespace", *names) if namespaces else names))
    for plan in plans:
        status = plan.get("status", {})
        sizing, observed = status.get("sizing", {}), status.get("observed", {})
        cells: list[RenderableType] = [plan["metadata"]["namespace"]] if namespaces else []
        cells += [
            plan["metadata"]["name"],
            _state(plan),
            str(sizing.get("gpus", "")),
            sizing.get("layoutText", ""),
            f"{observed['progress']:.0%}" if "progress" in observed else "",
            format_count(observed["tokensPerSecond"]) if "tokensPerSecond" in observed else "",
            status.get("eta", "").replace("T", " ").removesuffix("Z")[:16],  # UTC, to the minute
            _deadline_cell(plan),
        ]
        table.add_row(*cells)
    return table


def _deadline_cell(plan: Object) -> Text:
    risk = condition(plan, ConditionType.DEADLINE_AT_RISK).get("status")
    if not plan.get("status", {}).get("deadline") or risk not in {"True", "False"}:
        return Text("")
    return Text("late", style="red") if risk == "True" else Text("yes", style="green")


def detail_page(plan: Object) -> list[RenderableType]:
    """One plan: its row, whether it is on time, its conditions and its resizes."""
    parts: list[RenderableType] = [plans_table([plan], namespaces=True), Text(on_time(plan))]
    opening = plan.get("status", {}).get("sizing", {}).get("opening")
    parts += [Text(f"Plan: {opening['text']}")] if opening else []
    parts.append(_conditions_table(plan))
    resizes = plan.get("status", {}).get("resizes", ())
    if resizes:
        table = _columns("At", "GPUs", "Layout", "Reason")
        for resize in resizes:
            gpus = f"{resize.get('fromGPUs', '')} to {resize.get('toGPUs', '')}"
            table.add_row(resize["at"], gpus, resize.get("toLayout", ""), resize.get("reason", ""))
        parts.append(Group(Text("Resizes", style="bold"), table))
    return parts


def _conditions_table(plan: Object) -> RenderableType:
    """Every condition with its reason."""
    table = _columns("Condition", "Status", "Reason", "Message")
    for entry in plan.get("status", {}).get("conditions", ()):
        table.add_row(entry["type"], entry["status"], entry["reason"], Text(entry.get("message", "")))
    return table
