"""The queries of the committed dashboards, with Grafana's variables filled in."""

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "helm/rightsizer/monitoring"
VARIABLES = {"$__rate_interval": "20s", "$__range_s": "60", "$__range": "60s"}
CHOICES = {"namespace": ".*", "plan": ".*", "cluster": ".*"}


def questions(*boards, **choices):
    """(panel, PromQL) of these dashboards, or of all; variables have these values, else every one."""
    for path in sorted(FOLDER.glob("*.json")):
        if boards and path.stem.removeprefix("rightsizer-") not in boards:
            continue
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                name = f"{path.stem} {panel['title']} {target['refId']}"
                yield name, filled(target["expr"], {**CHOICES, **choices})


def filled(expr, choices):
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    for name, value in choices.items():
        expr = expr.replace(f"${name}", value)
    return expr
