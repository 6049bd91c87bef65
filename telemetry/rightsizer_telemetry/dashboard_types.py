"""Dashboards without Grafana's format: queries, panels, variables."""

from rightsizer.values import immutable

__all__ = ["Dashboard", "Panel", "Query", "Variable", "bars", "line", "stat"]


@immutable
class Query:
    """A PromQL expression and the legend of its series."""

    expr: str
    legend: str = ""


@immutable
class Panel:
    """One panel. `unit` is a Grafana unit; `kind` is timeseries, stat, table or bargauge."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    columns: int = 12
    most: float | None = None


@immutable
class Variable:
    """A dashboard variable: the values of a metric's label."""

    name: str
    metric: str


@immutable
class Dashboard:
    """One page."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()


def stat(title: str, description: str, expr: str, unit: str = "short") -> Panel:
    """One number, a third of a row."""
    return Panel(
        title=title, description=description, queries=(Query(expr=expr),), unit=unit, kind="stat", columns=4
    )


def line(
    title: str, description: str, *queries: tuple[str, str], unit: str = "short", most: float | None = None
) -> Panel:
    """Curves over time; each query is (expression, legend)."""
    panel_queries = tuple(Query(expr=expr, legend=legend) for expr, legend in queries)
    return Panel(title=title, description=description, queries=panel_queries, unit=unit, most=most)


def bars(title: str, description: str, expr: str, legend: str, unit: str = "short") -> Panel:
    """The current value of each series as a bar."""
    return Panel(
        title=title,
        description=description,
        queries=(Query(expr=expr, legend=legend),),
        unit=unit,
        kind="bargauge",
    )
