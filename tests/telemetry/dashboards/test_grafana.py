"""The dashboards as Grafana reads them: variables, thresholds, units and links."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rightsizer_telemetry.dashboards import grafana

ROOT = Path(__file__).resolve().parents[3]
BOARDS = {name.removesuffix(".json"): json.loads(text) for name, text in grafana.files()}
PANELS = [(uid, panel) for uid, board in BOARDS.items() for panel in board["panels"]]
each_panel = pytest.mark.parametrize(
    ("uid", "panel"), PANELS, ids=[f"{uid}: {panel['title']}" for uid, panel in PANELS]
)


@each_panel
def test_every_query_selects_the_chosen_cluster_and_no_unknown_choice(uid, panel):
    choices = {variable["name"] for variable in BOARDS[uid]["templating"]["list"]}
    for target in panel["targets"]:
        selectors = re.findall(r"[\w:]+\{([^}]*)\}", target["expr"])
        assert selectors
        assert all('cluster=~"$cluster' in selector for selector in selectors)
        assert set(re.findall(r"\$(\w+)", target["expr"])) - choices <= {
            "__range",
            "__range_s",
            "__rate_interval",
        }


@each_panel
def test_a_colour_is_chosen_never_grafana_s_red_from_80(uid, panel):
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    values = [step["value"] for step in steps]
    assert values[0] is None
    assert values[1:] == sorted(values[1:])
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["description"]


def links(panel):
    return [link["url"] for link in panel["fieldConfig"]["defaults"]["links"]]


@each_panel
def test_links_lead_to_pages_and_runbooks_that_exist(uid, panel):
    for url in map(urlsplit, links(panel)):
        if url.scheme:
            assert (ROOT / url.path.split("/blob/main/")[1]).parent.is_dir()
        else:
            assert url.path.removeprefix("/d/") in BOARDS


def test_plans_owners_and_alerts_are_linked():
    found = {(uid, panel["title"]): urlsplit(link).path for uid, panel in PANELS for link in links(panel)}
    assert found["rightsizer-fleet", "Deadline minus expected end"] == "/d/rightsizer-plan"
    assert found["rightsizer-fleet", "Busy share by owner"] == "/d/rightsizer-namespace"
    assert found["rightsizer-namespace", "Alerts"].endswith("/docs/runbooks/${__field.labels.alertname}.md")


def test_each_page_lists_the_others():
    for board in BOARDS.values():
        (link,) = board["links"]
        assert (link["type"], link["tags"]) == ("dashboards", board["tags"])
        assert link["includeVars"]
        assert link["keepTime"]
