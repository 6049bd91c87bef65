"""A real Prometheus that dies: no plan is resized meanwhile, and each is measured again afterwards."""

import time

import pytest
from followed import resized, wait

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]

WINDOW_S = 24  # HASTE
ON_N3 = {"nodeSelector": {"kubernetes.io/hostname": "n3"}}
PLANS = {
    "large": {"finish": "40d", "least": 2, "env": {"STEP_SECONDS": "0.24"}, "pods": ON_N3},
    "small": {"finish": "60d", "env": {"STEP_SECONDS": "1.3"}},
}
"""By their paces one GPU is enough for the first, and too few for the second."""


def unheard(run):
    """True if the plan reports that Prometheus is away; at first too few samples may be the reason."""
    said = run.condition("MetricsAvailable")
    return said["reason"] == "NoCounters" and "Prometheus does not answer" in said["message"]


def test_a_dead_prometheus_resizes_nothing_and_plans_are_resized_after_its_return(
    launch, strangers, somebody_waits, prometheus
):
    prometheus.kill()
    runs = {name: launch(name, **what) for name, what in PLANS.items()}
    for run in runs.values():
        wait(run, "no counters, and why", lambda run=run: unheard(run))
    runs["large"].steps_with(2)
    runs["small"].steps_with(1)
    somebody_waits(runs["large"].namespace)
    time.sleep(2 * WINDOW_S)
    assert [resized(run) for run in runs.values()] == [[], []]
    assert runs["large"].condition("OverProvisioned")["status"] == "Unknown"
    prometheus.start()
    wait(runs["large"], "one GPU", lambda: resized(runs["large"]) == [(2, 1, "Measured")])
    wait(runs["small"], "growth", lambda: resized(runs["small"]) == [(1, 2, "Measured")])
    assert all(run.condition("MetricsAvailable")["status"] == "True" for run in runs.values())
