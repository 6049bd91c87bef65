"""A plan's rendezvous store that cannot start."""

import pytest
from planrun import IDLE

pytestmark = pytest.mark.kubernetes


def test_workers_without_a_store_do_not_count_as_running_until_the_template_is_right(start, cluster):
    def template(memory):
        store = {"name": "store", "resources": {"requests": {"memory": memory}, "limits": {"memory": memory}}}
        return {"podTemplate": {"spec": {"containers": [trainer, store]}}}

    run = start(launch=IDLE)
    trainer = run.document["spec"]["launch"]["podTemplate"]["spec"]["containers"][0]
    run.patch(launch=template("1Ti"))
    cluster.wait("attempt 2", lambda: run.jobs == [f"{run.name}-a2"], within_s=120)
    cluster.wait("workers", lambda: "2 of 2 workers" in run.condition("Running")["message"], within_s=120)
    cluster.wait("its cause", lambda: run.condition("Running")["reason"] == "Unschedulable")
    assert "the rendezvous pod is not ready; pod small-gpt-rdzv-" in run.condition("Ready")["message"]
    run.patch(launch=template("1Gi"))
    cluster.wait("attempt 3", lambda: run.jobs == [f"{run.name}-a3"], within_s=120)
    run.until("Running")
