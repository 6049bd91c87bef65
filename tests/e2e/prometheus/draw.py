"""Draws the committed dashboards as Grafana would: their JSON's units, legends, thresholds and grid.

The answers are a real Prometheus'; matplotlib draws.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from rightsizer_telemetry.client import FailedQuery, Prometheus

COLOURS = {"green": "#37872d", "orange": "#e08400", "red": "#c4162a", "blue": "#1f60c4"}
CURVES = (
    "#56a64b",
    "#f2b705",
    "#3274d9",
    "#e0752d",
    "#c4162a",
    "#8f3bb8",
    "#5794f2",
    "#705da0",
    "#806020",
    "#4a4a4a",
)
MOST = 10
"""Series of one panel that are drawn; the panel says how many there are."""
_ROW_INCHES, _WIDTH_INCHES, _COLUMNS = 0.36, 14.0, 24
_INK, _PALE = "#24292e", "#6a737d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A client, the end of the range, its length, and the values of the dashboard's variables."""

    client: Prometheus
    end_s: float
    span_s: float
    step_s: float
    choices: Mapping[str, str]

    def filled(self, expr: str) -> str:
        """The query as Grafana sends it."""
        fixed = {"__rate_interval": "4m", "__range_s": f"{self.span_s:.0f}", "__range": f"{self.span_s:.0f}s"}
        values = {**fixed, **self.choices}
        return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)

    def now(self, expr: str) -> Sequence[tuple[dict[str, str], float]]:
        """The rows at the end."""
        answer = self.client.instant(self.filled(expr), at_s=self.end_s)
        assert not isinstance(answer, FailedQuery), (expr, answer)
        return [(dict(row.labels), row.value) for row in answer]

    def curves(self, expr: str) -> Sequence[tuple[dict[str, str], Sequence[tuple[float, float]]]]:
        """The series over the range; x is in hours before the end."""
        times = {"start_s": self.end_s - self.span_s, "end_s": self.end_s, "step_s": self.step_s}
        answer = self.client.range(self.filled(expr), **times)
        assert not isinstance(answer, FailedQuery), (expr, answer)
        return [
            (dict(series.labels), [((at_s - self.end_s) / 3600, value) for at_s, value in series.points])
            for series in answer
        ]


def text(value: float, unit: str) -> str:
    """A value as Grafana writes it in this unit."""
    if unit == "percentunit":
        return f"{value:.0%}".replace("%", " %")
    if unit == "s":
        return _duration(value) if value else "0 s"
    if unit == "watt":
        return f"{value / 1000:.1f} kW" if abs(value) >= 1000 else f"{value:.0f} W"
    number = f"{value / 1000:,.0f}k" if abs(value) >= 10_000 else f"{value:,.3g}"
    return number + {"reqps": " req/s", "short": ""}.get(unit, unit.removeprefix("suffix:"))


def _duration(value_s: float) -> str:
    for unit, seconds in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if abs(value_s) >= seconds * (1.5 if unit != "s" else 1):
            return f"{value_s / seconds:.3g} {unit}"
    return f"{value_s * 1000:.0f} ms"


def legend(template: str, labels: Mapping[str, str]) -> str:
    """The legend of a series; a label that it lacks is empty."""
    return " ".join(re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template).split())


def colour(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    """The colour of the highest threshold that the value reaches."""
    reached = [step for step in steps if step["value"] is None or value >= step["value"]]
    return COLOURS[reached[-1]["color"]]


def draw(board: Mapping[str, Any], moment: Moment) -> Figure:
    """The page."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    height = (rows + 3) * _ROW_INCHES
    figure = Figure(figsize=(_WIDTH_INCHES, height), facecolor="#f4f5f5")
    chosen = ", ".join(f"{name} {value}" for name, value in moment.choices.items() if value != ".*")
    figure.text(0.012, 1 - 0.8 * _ROW_INCHES / height, board["title"], fontsize=14, color=_INK, va="center")
    note = f"{chosen + '; ' if chosen else ''}last {moment.span_s / 3600:g} hours of invented sample data"
    figure.text(0.012, 1 - 1.9 * _ROW_INCHES / height, note, fontsize=9, color=_PALE, va="center")
    for panel in board["panels"]:
        grid = panel["gridPos"]
        left, width = grid["x"] / _COLUMNS, grid["w"] / _COLUMNS
        bottom = 1 - (grid["y"] + grid["h"] + 2.7) * _ROW_INCHES / height
        card = (left + 0.006, bottom, width - 0.009, (grid["h"] - 0.25) * _ROW_INCHES / height)
        _PANELS[panel["type"]](_card(figure, card, panel), panel, moment)
    return figure


def _card(figure: Figure, card: tuple[float, float, float, float], panel: Mapping[str, Any]) -> Any:
    """The panel's white card with its title; the axes inside it."""
    frame = figure.add_axes(card, facecolor="white")
    frame.set(xticks=[], yticks=[])
    frame.spines[:].set_color("#d8dadd")
    wide, inches = figure.get_figwidth() * card[2], figure.get_figheight() * card[3]
    frame.text(
        0.1 / wide,
        1 - 0.15 / inches, panel["title"], transform=frame.transAxes, fontsize=9.5, color=_INK,
               va="center", fontweight="bold")  # fmt: skip
    return frame


def _inner(frame: Any, left: float, bottom: float, right: float, top: float) -> Any:
    """Axes inside the card with these margins in inches."""
    figure, box = frame.figure, frame.get_position()
    wide, high = figure.get_size_inches()
    axes = figure.add_axes(
        (
            box.x0 + left / wide,
            box.y0 + bottom / high,
            box.width - (left + right) / wide,
            box.height - (bottom + top) / high,
        )
    )
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=7.5, labelcolor=_PALE)
    return axes


def _number(frame: Any, panel: Mapping[str, Any], moment: Moment) -> None:
    field = panel["fieldConfig"]["defaults"]
    rows = moment.now(panel["targets"][0]["expr"])
    value = rows[0][1] if rows else math.nan
    shown = text(value, field["unit"]) if rows else field["noValue"]
    ink = colour(value, field["thresholds"]["steps"]) if rows else _PALE
    frame.text(0.5, 0.42, shown, transform=frame.transAxes, fontsize=22, color=ink, ha="center", va="center")


def _bars(frame: Any, panel: Mapping[str, Any], moment: Moment) -> None:
    field, target = panel["fieldConfig"]["defaults"], panel["targets"][0]
    rows = [(legend(target["legendFormat"], labels), value) for labels, value in moment.now(target["expr"])]
    if not rows:
        frame.text(
            0.5, 0.45, field["noValue"], transform=frame.transAxes, fontsize=11, color=_PALE, ha="center"
        )
        return
    shown = [(_short(name or "all", 40), value) for name, value in rows[:MOST]]
    axes = _inner(frame, 0.35 + 0.068 * max(len(name) for name, _ in shown), 0.12, 0.95, 0.34)
    low = min(0.0, *(value for _, value in shown), field.get("min", 0.0))
    high = field.get("max") or max(0.0, *(value for _, value in shown)) or 1.0
    for place, (_, value) in enumerate(shown):
        axes.barh(place, high - low, left=low, height=0.62, color="#f0f1f2")
        axes.barh(place, value, height=0.62, color=colour(value, field["thresholds"]["steps"]))
        axes.text(high + 0.02 * (high - low), place, text(value, field["unit"]), va="center", fontsize=9,
                  color=colour(value, field["thresholds"]["steps"]))  # fmt: skip
    axes.set(xlim=(low, high), ylim=(max(len(shown), 3) - 0.4, -0.6), xticks=[])
    axes.set_yticks(range(len(shown)), [name for name, _ in shown])
    _count(frame, len(rows))


def _lines(frame: Any, panel: Mapping[str, Any], moment: Moment) -> None:
    field = panel["fieldConfig"]["defaults"]
    found = [
        (legend(target["legendFormat"], labels) or "value", points)
        for target in panel["targets"]
        for labels, points in moment.curves(target["expr"])
    ]
    if not found:
        frame.text(
            0.5, 0.45, field["noValue"], transform=frame.transAxes, fontsize=11, color=_PALE, ha="center"
        )
        return
    names = [_short(name, 34) for name, _ in found[:MOST]]
    columns = min(4, max(1, 90 // (8 + max(map(len, names)))))
    axes = _inner(frame, 0.92, 0.38 + 0.16 * math.ceil(len(names) / columns), 0.2, 0.36)
    for ink, name, (_, points) in zip(CURVES, names, found, strict=False):
        axes.plot(*zip(*_broken(points, moment.step_s), strict=True), color=ink, linewidth=1.3, label=name)
    handles = list(axes.lines)
    _vertical(axes, field, whole=all(value % 1 == 0 for _, points in found for _, value in points))
    axes.set_xlim(-moment.span_s / 3600, 0)
    hours = [-moment.span_s / 3600 * part / 6 for part in range(6, -1, -1)]
    axes.set_xticks(hours, [f"{hour:g} h" if hour else "now" for hour in hours])
    axes.tick_params(axis="x", pad=7)
    axes.grid(visible=True, color="#eceded", linewidth=0.8)
    frame.legend(handles, names, loc="lower left", ncols=columns, fontsize=7.5, frameon=False,
                 labelcolor=_INK, handlelength=1.2, borderaxespad=0.2)  # fmt: skip
    _count(frame, len(found))


def _vertical(axes: Any, field: Mapping[str, Any], *, whole: bool) -> None:
    """The limits, the ticks in the unit, and thresholds as dashed lines where the panel shows them."""
    low, high = axes.get_ylim()
    if low > -0.05 * abs(high) and (whole or field["unit"] != "short" or low < 0.6 * high):
        low = 0.0
    low, high = field.get("min", low), field.get("max", high)
    axes.set_ylim(low, high * 1.02 if high > 0 else high)
    if field.get("custom", {}).get("thresholdsStyle", {}).get("mode") == "dashed":
        for step in field["thresholds"]["steps"]:
            if step["value"] is not None and low <= step["value"] <= high:
                axes.axhline(step["value"], color=COLOURS[step["color"]], linestyle="--", linewidth=0.9)
    axes.yaxis.set_major_locator(_locator(low, high, field["unit"], whole=whole))
    axes.yaxis.set_major_formatter(lambda value, _: text(value, field["unit"]))


_TIMES_S = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    28800,
)


def _locator(low: float, high: float, unit: str, *, whole: bool) -> Any:
    """Round values of the unit."""
    if unit == "s":
        return MultipleLocator(next((step for step in _TIMES_S if (high - low) / step <= 4), 86400))
    return MaxNLocator(4, steps=(1, 2, 2.5, 5, 10), integer=whole, min_n_ticks=2)


def _broken(points: Sequence[tuple[float, float]], step_s: float) -> Sequence[tuple[float, float]]:
    """The points with a break where some are missing."""
    whole: list[tuple[float, float]] = []
    for at, value in points:
        if whole and at - whole[-1][0] > 1.5 * step_s / 3600:
            whole.append((at, math.nan))
        whole.append((at, value))
    return whole


def _count(frame: Any, found: int) -> None:
    if found > MOST:
        frame.text(
            0.99, 0.95, f"{MOST} of {found}", transform=frame.transAxes, fontsize=8, ha="right", va="top"
        )


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}\u2026"


_PANELS = {"stat": _number, "bargauge": _bars, "timeseries": _lines}
