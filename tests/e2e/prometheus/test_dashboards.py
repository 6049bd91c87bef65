"""Every panel of the committed dashboards asks something that real data answers."""

import json
import time
from pathlib import Path

import pytest

from rightsizer_telemetry.client import Unknown

pytestmark = pytest.mark.prometheus

FOLDER = Path(__file__).resolve().parents[3] / "deploy/grafana"
VARIABLES = {"$__rate_interval": "20s", "$__range_s": "60", "$__range": "60s"}


def questions():
    for path in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield pytest.param(target["expr"], id=f"{path.stem} {panel['title']} {target['refId']}")


def filled(expr, choices=("namespace", "plan", "cluster")):
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    for name in choices:
        expr = expr.replace(f"${name}", ".*")
    return expr


@pytest.mark.parametrize("expr", list(questions()))
def test_a_panel_shows_something(live, expr):
    assert "$" not in filled(expr)
    end_s = time.monotonic() + 60
    with live.client() as client:
        while not (answer := client.instant(filled(expr))):  # a loaded machine misses a scrape at times
            assert time.monotonic() < end_s, "empty"
            time.sleep(2)
    assert not isinstance(answer, Unknown), answer
