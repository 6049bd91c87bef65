"""Every panel of the committed dashboards has data in a real Prometheus."""

import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
from panels import questions

from rightsizer_telemetry.client import FailedQuery

pytestmark = pytest.mark.prometheus


@pytest.mark.parametrize("expr", [pytest.param(expr, id=panel) for panel, expr in questions()])
def test_a_panel_shows_something(live, expr):
    assert "$" not in expr
    end_s = time.monotonic() + 60
    with live.client() as client:
        while not (answer := client.instant(expr)):  # a loaded machine misses a scrape at times
            assert time.monotonic() < end_s, "empty"
            time.sleep(2)
    assert not isinstance(answer, FailedQuery), answer


OF_GPUS = ("fleet", "namespace", "plan", "waste")


@pytest.mark.parametrize(
    "expr",
    [
        pytest.param(expr, id=panel)
        for panel, expr in questions(*OF_GPUS, cluster="nowhere")
        if "ALERTS" not in expr
    ],
)
def test_another_cluster_s_panel_shows_nothing(live, expr):
    with live.client() as client:
        assert [row.value for row in client.instant(expr) if row.value] == []


def held(client, board, **choices):
    """The number that the dashboard shows as held."""
    (expr,) = [
        expr for panel, expr in questions(board, **choices) if panel == f"rightsizer-{board} GPUs held A"
    ]
    return sum(row.value for row in client.instant(expr))


def test_a_cluster_s_and_a_namespace_s_page_count_their_own_gpus(live):
    with live.client() as client:
        assert held(client, "fleet", cluster="hpc") == 5
        assert held(client, "namespace", namespace="play") == 2
        assert held(client, "namespace", namespace="team") == 5


@pytest.mark.parametrize(
    "expr", [pytest.param(expr, id=panel) for panel, expr in questions("namespace", namespace="play")]
)
def test_a_namespace_s_page_shows_only_that_namespace(live, expr):
    with live.client() as client:
        assert {row.labels.get("namespace", "play") for row in client.instant(expr)} <= {"play"}
