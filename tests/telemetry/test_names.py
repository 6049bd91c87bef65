"""Every metric is declared once, and programs, rules and dashboards hold to the declaration."""

import re
from pathlib import Path

from rightsizer_launch.worker.metrics import NAMES
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.monitor.metrics import SweepMetrics
from rightsizer_slurm.submit.releases import Releases
from rightsizer_slurm.submit.ticket_store import TicketStore
from rightsizer_telemetry import alerts, generate, names, rules
from rightsizer_telemetry.dashboards.grafana import DASHBOARDS

ROOT = Path(__file__).resolve().parents[2]


def test_the_agent_serves_the_declared_metrics():
    assert dict(names.AGENT) == NAMES


def test_the_operator_serves_the_declared_metrics():
    found = Metrics().registry.collect()
    assert {family.name + "_total" * (family.type == "counter") for family in found} == set(names.OPERATOR)


def test_slurms_monitor_and_daemon_serve_the_declared_metrics(tmp_path):
    slurm = Slurm()
    releases = Releases(TicketStore(tmp_path / "state.db"), slurm, SlurmCommands(slurm), SiteConfig())
    found = [*SweepMetrics(cluster="c").collect(), *releases.collect()]
    assert {family.name + "_total" * (family.type == "counter") for family in found} == set(names.SLURM)


def test_the_rules_record_the_declared_series():
    recorded = {rule.record for group in rules.groups() for rule in group.rules}
    assert recorded == set(names.RECORDED)


KEYWORDS = {"and", "or", "unless", "offset", "bool", "Inf", "NaN"}
LISTS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")


def metrics(expr):
    """The names of metrics in a query: identifiers outside strings, matchers, lists of labels, functions."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", expr)
    bare = LISTS.sub("", re.sub(r"\[[^]]*\]", "", re.sub(r"\{[^}]*\}", "", bare)))
    found = re.findall(r"(?<![\w$.])[A-Za-z_:][\w:]*(?!\w*\s*\()", bare)
    return {name for name in found if name not in KEYWORDS}


QUERIES = {
    **{alert.name: alert.expr for alert in alerts.ALERTS},
    **{
        f"{board.uid} {panel.title} {i}": query.expr
        for board in DASHBOARDS
        for panel in board.panels
        for i, query in enumerate(panel.queries)
    },
}


def test_a_query_names_only_metrics_that_exist():
    known = {"ALERTS", *(series for name in names.OURS for series in names.series(name))}
    assert [title for title, expr in QUERIES.items() if not metrics(expr)] == []
    assert {title: metrics(expr) - known for title, expr in QUERIES.items() if metrics(expr) - known} == {}


def test_metrics_are_found_in_a_query():
    expr = (
        'sum by (a, b) (rate(x_total{c="y"}[5m])) / on (d) group_left (e) max_over_time(z:w[$__range]) > 1e3'
    )
    assert metrics(expr) == {"x_total", "z:w"}


def test_each_alert_has_a_runbook_and_each_runbook_an_alert():
    pages = {path.stem for path in (ROOT / alerts.RUNBOOKS).glob("*.md")}
    assert pages == {alert.name for alert in alerts.ALERTS}


def test_the_committed_files_are_those_that_are_generated():
    stale = [name for name, text in generate.files().items() if (ROOT / name).read_text() != text]
    assert stale == []
