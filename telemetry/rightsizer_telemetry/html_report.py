"""The GPU usage report as one self-contained HTML page: tables, and plots as inline SVG."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from rightsizer_engine.units import format_duration
from rightsizer_telemetry.savings import savings
from rightsizer_telemetry.usage import TARGET_BUSY, Usage, UsageReport, owners, total

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 860, 220, 80, 24
_BARS = 20
"""Owners in the bar plot; the table lists all."""
_ACTIONS = 10
"""Actions in the first table; the last table lists every workload."""
_NAME = 30
"""Characters of an owner's name beside its bar; the table has all."""
_MONTH_S = 30 * 86400.0


def page(report: UsageReport) -> str:
    """The HTML page; the template engine escapes all external text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (only the page needs it)

    environment = Environment(
        loader=PackageLoader("rightsizer_telemetry", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "hours": _hours,
        "share": _share,
        "usd": _usd,
        "count": _count,
        "span": format_duration,
    }
    return environment.get_template("report.html.j2").render(
        at=_moment(report.at_s),
        start=_moment(report.at_s - report.window_s),
        savings=savings(report),
        actions=savings(report).each[:_ACTIONS],
        month_share=_MONTH_S / report.window_s,
        report=report,
        owners=owners(report),
        total=total(report),
        target=TARGET_BUSY,
        curves=_curves(report),
        bars=_bars(report),
        dots=_dots(report.workloads),
        plot={"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "bottom": _BOTTOM},
    )


def _moment(at_s: float) -> str:
    return dt.datetime.fromtimestamp(at_s, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _curves(report: UsageReport) -> Mapping[str, Any]:
    """Lines of GPUs over the window, in pixels, with the ticks of the vertical axis."""
    most = max((value for points in report.curves.values() for _, value in points), default=0.0) or 1.0
    start_s = report.at_s - report.window_s

    def place(at_s: float, value: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - 8) * (at_s - start_s) / report.window_s
        return f"{x:.1f},{_down(value / most):.1f}"

    lines = {
        name: " ".join(place(at_s, value) for at_s, value in points)
        for name, points in report.curves.items()
        if points
    }
    return {"lines": lines, "ticks": [(f"{most * share:,.3g} GPUs", _down(share)) for share in (0, 0.5, 1)]}


def _down(share: float) -> float:
    """The y coordinate of a share, from the top as in SVG."""
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - 12)


def _bars(report: UsageReport) -> Sequence[Mapping[str, Any]]:
    """One bar per owner: busy, held and idle GPU-hours."""
    largest = [owner for owner in owners(report) if owner.held_gpu_h > 0][:_BARS]
    most = max((owner.held_gpu_h for owner in largest), default=1.0)
    room = _WIDTH - 220 - 140  # a name on the left, the idle hours on the right
    return [
        {
            "name": owner.name if len(owner.name) <= _NAME else f"{owner.name[: _NAME - 1]}\u2026",
            "y": 6 + 20 * i,
            "held": room * owner.held_gpu_h / most,
            "used": room * (owner.used_gpu_h or 0.0) / most,
            "idle": room * (owner.idle_gpu_h or 0.0) / most,
            "label": _hours(owner.idle_gpu_h),
        }
        for i, owner in enumerate(largest)
    ]


def _dots(workloads: Sequence[Usage]) -> Sequence[Mapping[str, Any]]:
    """One dot per workload: mean busy share against the square root of GPU-hours."""
    known = [use for use in workloads if use.busy_mean is not None and use.held_gpu_h > 0]
    most = max((use.held_gpu_h for use in known), default=1.0)
    return [
        {
            "x": _LEFT + (_WIDTH - _LEFT - 16) * (use.held_gpu_h / most) ** 0.5,
            "y": _down(min(1.0, use.busy_mean or 0.0)),
            "title": f"{use.workload}: {_share(use.busy_mean)} busy, {_hours(use.held_gpu_h)}",
        }
        for use in known
    ]


def _hours(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.{0 if value >= 100 else 1}f} GPU-h"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:,.0f}"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
