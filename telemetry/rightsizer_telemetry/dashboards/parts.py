"""Dashboards without Grafana's format: queries, panels, thresholds, variables."""

from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.values import immutable
from rightsizer_telemetry import alerts
from rightsizer_telemetry.usage import TARGET_BUSY

Limits = tuple[tuple[float | None, str], ...]
"""(value, colour) in ascending order: the colour from this value on; None: below all."""

NEUTRAL: Limits = ((None, "blue"),)
"""For numbers that are neither good nor bad. Grafana's own default would colour them red from 80 on."""
BAD: Limits = ((None, "green"), (1, "red"))
IDLE: Limits = ((None, "green"), (1, "orange"))
LATE: Limits = ((None, "red"), (0, "green"))
MEMBER: Limits = ((None, "red"), (1, "green"), (2, "red"))
"""Exactly one."""
BUSY: Limits = ((None, "red"), (load_resize().low_busy, "orange"), (TARGET_BUSY, "green"))
FULL: Limits = ((None, "green"), (alerts.MEMORY_FULL, "red"))
AGE: Limits = ((None, "green"), (alerts.CHECKPOINT_OLD_S, "red"))
SILENT: Limits = ((None, "green"), (alerts.SILENT_S, "red"))

SHARE, GPUS, GPU_HOURS, TOKENS = "percentunit", "suffix: GPUs", "suffix: GPU-h", "suffix: tokens/s"
"""Grafana's units."""

WHO = "{{executor}} {{cluster}} {{namespace}}"
WORKLOAD = "{{namespace}} {{workload}}"
PLAN = "{{namespace}} {{plan}}"
_ALERT = "{{alertname}} {{alertstate}}"
"""Legends. Their labels also say where a series links to."""


@immutable
class Query:
    """A PromQL expression and the legend of its series."""

    expr: str
    legend: str = ""


@immutable
class Panel:
    """One panel. `unit` is Grafana's; `kind` is timeseries, stat or bargauge; `most` ends the axis."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    columns: int = 12
    most: float | None = None
    limits: Limits = NEUTRAL


@immutable
class Variable:
    """A dashboard variable: the values that a label has in a selection of series."""

    name: str
    selection: str


@immutable
class Dashboard:
    """One page. Each has the variable `cluster` too."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()


_CHOSEN, _CHOSEN_OR_NONE = 'cluster=~"$cluster"', 'cluster=~"$cluster|"'


def of(metric: str, *matchers: str) -> str:
    """The metric in the chosen clusters."""
    return f"{metric}{{{','.join((_CHOSEN, *matchers))}}}"


def of_program(metric: str, *matchers: str) -> str:
    """A program's own metric in the chosen clusters. One without a label `cluster` belongs to each."""
    return f"{metric}{{{','.join((_CHOSEN_OR_NONE, *matchers))}}}"


def stat(title: str, description: str, expr: str, unit: str = "short", *, limits: Limits = NEUTRAL) -> Panel:
    """One number, a sixth of a row."""
    queries = (Query(expr=expr),)
    return Panel(
        title=title,
        description=description,
        queries=queries,
        unit=unit,
        kind="stat",
        columns=4,
        limits=limits,
    )


def line(
    title: str,
    description: str,
    *queries: tuple[str, str],
    unit: str = "short",
    most: float | None = None,
    limits: Limits = NEUTRAL,
) -> Panel:
    """Curves over time; each query is (expression, legend)."""
    asked = tuple(Query(expr=expr, legend=legend) for expr, legend in queries)
    return Panel(title=title, description=description, queries=asked, unit=unit, most=most, limits=limits)


def bars(
    title: str,
    description: str,
    expr: str,
    legend: str,
    unit: str = "short",
    *,
    most: float | None = None,
    limits: Limits = NEUTRAL,
) -> Panel:
    """The current value of each series as a bar."""
    queries = (Query(expr=expr, legend=legend),)
    return Panel(
        title=title,
        description=description,
        queries=queries,
        unit=unit,
        kind="bargauge",
        most=most,
        limits=limits,
    )


def firing(*matchers: str) -> Panel:
    """Our alerts that fire or are about to; each bar links to its runbook."""
    alert = of_program("ALERTS", 'alertname=~"Rightsizer.+"', *matchers)
    return bars(
        "Alerts",
        "Number of series for which each alert fires, or is pending. A click opens the runbook.",
        f"sort_desc(count by (alertname, alertstate) ({alert}))",
        _ALERT,
        limits=BAD,
    )
