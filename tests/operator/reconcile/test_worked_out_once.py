"""A reconcile derives each value once and passes it on."""

import sys
from collections import Counter

import pytest

from rightsizer_operator.reconcile import parsed_plan
from rightsizer_operator.reconcile.reconcile import reconcile
from rightsizer_operator.values.snapshot import ReportedProgress

DERIVED = {
    ("sizing.py", "resolve"),
    ("placeholders.py", "layout_of"),
    ("pod_spec.py", "digest"),
    ("attempts.py", "_launch"),
    ("status.py", "_observed"),
    ("deadline.py", "expected_end"),
    ("deadline.py", "due_at"),
}


def calls(snapshot):
    """The number of calls of each of these functions in a reconcile of this snapshot."""
    counted = Counter()

    def count(frame, event, _):
        code = frame.f_code
        name = (code.co_filename.rpartition("/")[2], code.co_name)
        if event == "call" and name in DERIVED:
            counted[name[1]] += 1

    sys.setprofile(count)
    try:
        reconcile(snapshot)
    finally:
        sys.setprofile(None)
    return counted


@pytest.fixture
def running(fake_cluster):
    """A cluster whose plan trains."""
    cluster = fake_cluster().settle()
    cluster.job(ready=2, startTime="2026-11-21T12:00:00Z")
    cluster.settle().later(minutes=5)
    cluster.progress = ReportedProgress(tokens=1e6, tokens_per_s=1000.0, step=100, workers=2)
    return cluster


def test_a_launch_derives_each_value_once(fake_cluster):
    snapshot = fake_cluster().snapshot()
    reconcile(snapshot)  # the size is cached
    parsed_plan._resolved.cache_clear()
    found = calls(snapshot)
    assert found["resolve"] == 1
    assert set(found.values()) == {1}, found


def test_a_running_plan_derives_each_value_once_and_is_not_resolved_again(running):
    found = calls(running.snapshot())
    assert "resolve" not in found
    assert set(found.values()) == {1}, found
