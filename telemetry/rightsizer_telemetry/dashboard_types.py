"""What a dashboard is made of, apart from how Grafana writes it down: questions, panels, choices."""

from rightsizer.values import immutable

__all__ = ["Dashboard", "Panel", "Query", "Variable", "bars", "line", "stat"]


@immutable
class Query:
    """One question and how its series are called."""

    expr: str
    legend: str = ""


@immutable
class Panel:
    """One picture. `unit` is Grafana's word; `kind` is timeseries, stat, table or bargauge."""

    title: str
    words: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    columns: int = 12
    most: float | None = None


@immutable
class Variable:
    """A choice above the panels: the values of a label of a metric."""

    name: str
    metric: str


@immutable
class Dashboard:
    """One page."""

    uid: str
    title: str
    words: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()


def stat(title: str, words: str, expr: str, unit: str = "short") -> Panel:
    """One number, a third of a row."""
    return Panel(title=title, words=words, queries=(Query(expr=expr),), unit=unit, kind="stat", columns=4)


def line(
    title: str, words: str, *queries: tuple[str, str], unit: str = "short", most: float | None = None
) -> Panel:
    """Curves over time; each query is (question, how its series are called)."""
    asked = tuple(Query(expr=expr, legend=legend) for expr, legend in queries)
    return Panel(title=title, words=words, queries=asked, unit=unit, most=most)


def bars(title: str, words: str, expr: str, legend: str, unit: str = "short") -> Panel:
    """A bar for each series, as it is now."""
    return Panel(
        title=title, words=words, queries=(Query(expr=expr, legend=legend),), unit=unit, kind="bargauge"
    )
