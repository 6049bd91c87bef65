"""The dashboards' pictures of the sample day: every panel has data, and its labels and numbers make sense."""

import json

import pytest
from matplotlib.text import Text
from tests.e2e.prometheus.backfill import served
from tests.e2e.prometheus.panels import CHOICES, FOLDER
from tests.e2e.prometheus.pictures import SPAN_S, STEP_S, VIEWS, Moment, draw, the_end
from tests.pictures import collisions, cut

pytestmark = pytest.mark.prometheus


@pytest.fixture(scope="module")
def day():
    """(server, end) with the whole sample day."""
    with served(end_s := the_end()) as server:
        yield server, end_s


@pytest.fixture(params=VIEWS, scope="module")
def view(request, day):
    """(board, moment) of each dashboard."""
    server, end_s = day
    chosen = {**CHOICES, **VIEWS[request.param]}
    board = json.loads((FOLDER / f"rightsizer-{request.param}.json").read_text())
    with server.client() as client:
        yield board, Moment(client=client, end_s=end_s, span_s=SPAN_S, step_s=STEP_S, choices=chosen)


def test_a_page_is_drawn_without_empty_panels_raw_labels_or_collisions(view):
    figure = draw(*view)
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert [text for text in texts if "{{" in text or "nan" in text or text == "no data"] == []
    assert {panel["title"] for panel in view[0]["panels"]} <= set(texts)
    assert collisions(figure) == []
    assert cut(figure) == []


def test_the_alerts_of_the_day_fire(day):
    server, end_s = day
    with server.client() as client:
        moment = Moment(client=client, end_s=end_s, span_s=SPAN_S, step_s=STEP_S, choices=CHOICES)
        firing = {labels["alertname"] for labels, _ in moment.curves("max by (alertname) (ALERTS)")}
    assert {f"RightsizerGPUs{what}" for what in ("Idle", "Underused", "Unmetered")} <= firing
    assert {"RightsizerPlanLate", "RightsizerPlanSlow"} <= firing


def test_shares_are_shares_and_only_margins_are_negative(view):
    board, moment = view
    for panel in board["panels"]:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            values = [value for _, points in moment.curves(target["expr"]) for _, value in points]
            if unit == "percentunit":
                assert all(0 <= value <= 1 for value in values), panel["title"]
            if panel["title"] != "Deadline minus expected end":
                assert min(values, default=0) >= 0, panel["title"]
