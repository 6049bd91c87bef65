"""The page's response to a query: its plan, or why there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rightsizer_api import dump
from rightsizer_cli.output.render import (
    SMALLEST_SHARE,
    measured_lines,
    opening_line,
    option_cells,
    option_facts,
    remarks,
    request_line,
)
from rightsizer_cli.page.form import Query, address, command, options, query_of_flag, stated
from rightsizer_cli.requests.inputs import calibrated, read
from rightsizer_cli.requests.usage_errors import format_error
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.levers import Lever, lever_text, levers
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Plan
from rightsizer_engine.units import format_bytes, format_duration
from rightsizer_engine.values import immutable

_MOST_LEVERS = 5


@immutable
class Bar:
    """A part of a total: its start and width in percent of the bar."""

    name: str
    text: str
    start: float
    width: float


@immutable
class LeverLink:
    """A change worth making, and the address of its page."""

    text: str
    address: str


@immutable
class PageResponse:
    """The page's result of a query. `error` is a user's mistake; then there is nothing else.

    `pending`: it is not computed yet, and nothing else is set.
    """

    error: str = ""
    pending: bool = False
    address: str = ""
    verdict: str = ""
    request: str = ""
    feasible: bool = False
    priced: bool = False
    facts: Mapping[str, str] | None = None
    step: Sequence[Bar] = ()
    memory: Sequence[Bar] = ()
    memory_limit: str = ""
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    levers: Sequence[LeverLink] = ()
    command: str = ""
    manifest: str = ""
    plan: Plan | None = None


def respond(query: Query, *, calibrate: bool = True) -> PageResponse:
    """Size the query, with the calibration from the user's own runs unless not wanted."""
    try:
        return _respond(stated(query), calibrate=calibrate)
    except RightsizerError as error:
        return PageResponse(error=format_error(error))


def _respond(query: Query, *, calibrate: bool) -> PageResponse:
    wanted, request = read(None, *options(query))
    decision = size(calibrated(request, ignore=not calibrate))
    shown = _of_plan(decision) if isinstance(decision, Plan) else _of_no_plan(decision)
    links = [_link(query, lever) for lever in levers(decision)[:_MOST_LEVERS]]
    return replace(
        shown,
        address=address(query),
        verdict=verdict(decision),
        request=request_line(decision.request).plain,
        levers=links,
        command=command(query),
        manifest=dump(wanted),
    )


def _link(query: Query, lever: Lever) -> LeverLink:
    changed = query_of_flag(query, lever.flag)
    return LeverLink(text=lever_text(lever), address="" if changed is None else address(changed))


def _of_plan(plan: Plan) -> PageResponse:
    option = plan.option
    limit_bytes = option.memory_limit_bytes
    remarked = [opening_line(plan), *remarks(plan)]
    advice = [str(line) for line in measured_lines(plan.request, option)]
    return PageResponse(
        feasible=True,
        priced=option.cost_usd is not None,
        facts=option_facts(option),
        step=_bars(option.step_by_cause_s, option.step_s, format_duration),
        memory=_bars(option.memory_by_cause_bytes, max(limit_bytes, option.device_bytes), format_bytes),
        memory_limit=format_bytes(limit_bytes),
        rows=[option_cells(other) for other in (option, *plan.runners_up)],
        notes=[line for line in (*remarked, *advice) if line],
        plan=plan,
    )


def _of_no_plan(result: NoPlan) -> PageResponse:
    return PageResponse(rows=[option_cells(option) for option in result.nearest])


def _bars(causes: Mapping[str, float], whole: float, text: Callable[[float], str]) -> list[Bar]:
    """The causes as parts of a whole, the largest first."""
    bars, start = [], 0.0
    for cause, value in sorted(causes.items(), key=lambda item: -item[1]):
        width = 100.0 * value / whole
        if width >= 100.0 * SMALLEST_SHARE:
            bars.append(Bar(name=cause.replace("_", " "), text=text(value), start=start, width=width))
            start += width
    return bars
