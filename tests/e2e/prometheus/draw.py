"""Draws the panels of the committed dashboards from a running Prometheus: matplotlib in Grafana's place.

python tests/e2e/prometheus/draw.py http://127.0.0.1:9090 docs/dashboards [minutes]
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl

from rightsizer_telemetry.client import FailedQuery, Prometheus, PrometheusSettings

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[3]
UNITS = {"percentunit": "share", "s": "seconds", "watt": "W", "reqps": "per second", "short": ""}


def filled(expr: str, span_s: float) -> str:
    for name, value in {
        "$__rate_interval": "30s",
        "$__range_s": f"{span_s:.0f}",
        "$__range": f"{span_s:.0f}s",
    }.items():
        expr = expr.replace(name, value)
    for name in ("namespace", "plan", "cluster"):
        expr = expr.replace(f"${name}", ".*")
    return expr


def label(legend: str, labels: dict[str, str]) -> str:
    for name in ("executor", "cluster", "namespace", "workload", "plan", "state", "jobid", "account", "user"):
        legend = legend.replace("{{" + name + "}}", labels.get(name, ""))
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return " ".join(legend.split()).replace("$", r"\$")[:38]


def bars(axes: Any, client: Prometheus, panel: dict[str, Any], span_s: float) -> None:
    rows = []
    for target in panel["targets"]:
        answer = client.instant(filled(target["expr"], span_s))
        if not isinstance(answer, FailedQuery):
            rows += [(label(target["legendFormat"], dict(row.labels)), row.value) for row in answer]
    rows = rows[:12][::-1]
    axes.barh([name or "all" for name, _ in rows], [value for _, value in rows], color="#3274d9")


def lines(axes: Any, client: Prometheus, panel: dict[str, Any], span_s: float) -> None:
    now_s = time.time()
    drawn = 0
    for target in panel["targets"]:
        answer = client.range(
            filled(target["expr"], span_s), start_s=now_s - span_s, end_s=now_s, step_s=max(2.0, span_s / 120)
        )
        for series in () if isinstance(answer, FailedQuery) else answer:
            minutes = [(at_s - now_s) / 60 for at_s, _ in series.points]
            axes.plot(
                minutes,
                [value for _, value in series.points],
                linewidth=1,
                label=label(target["legendFormat"], dict(series.labels)) if drawn < 6 else None,
            )
            drawn += 1
    axes.legend(fontsize=6, loc="best")


def draw(path: Path, client: Prometheus, folder: Path, span_s: float) -> None:
    board = json.loads(path.read_text())
    panels = board["panels"]
    rows = -(-len(panels) // 3)
    figure, grid = plt.subplots(rows, 3, figsize=(13, 2.1 * rows + 0.5), layout="constrained")
    for axes, panel in zip(grid.flat, panels, strict=False):
        axes.set_title(panel["title"], fontsize=9, loc="left")
        axes.tick_params(labelsize=6)
        axes.set_ylabel(UNITS.get(panel["fieldConfig"]["defaults"].get("unit", ""), ""), fontsize=7)
        (lines if panel["type"] == "timeseries" else bars)(axes, client, panel, span_s)
    for axes in list(grid.flat)[len(panels) :]:
        axes.axis("off")
    figure.suptitle(
        f"{board['title']}: test data in a real Prometheus, drawn by matplotlib, not by Grafana",
        fontsize=10,
    )
    figure.savefig(folder / f"{path.stem}.png", dpi=70)
    plt.close(figure)


def main() -> None:
    url, folder = sys.argv[1], Path(sys.argv[2])
    span_s = 60 * float(sys.argv[3]) if len(sys.argv) > 3 else 300.0
    folder.mkdir(parents=True, exist_ok=True)
    with Prometheus(PrometheusSettings(url=url, timeout_s=120.0)) as client:
        for path in sorted((ROOT / "helm/rightsizer/monitoring").glob("*.json")):
            draw(path, client, folder, span_s)


if __name__ == "__main__":
    main()
