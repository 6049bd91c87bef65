"""Plans in namespaces that enforce the `restricted` Pod Security Standard, and a store that cannot start."""

import pytest

pytestmark = pytest.mark.kubernetes


def test_a_plan_runs_to_its_end_in_a_restricted_namespace(start, cluster, namespace):
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    run = start(workload={"tokens": "40k"})
    run.until("Running")
    for role in ("worker", "rendezvous"):
        assert run.pods(role)
    name = min(pod["metadata"]["name"] for pod in run.pods())
    assert run.kubectl("exec", name, "--", "id", "-u").strip() == "65532"
    run.until("Complete", within_s=300)
    assert "violates PodSecurity" not in run.kubectl("get", "events")


def test_workers_whose_store_cannot_start_do_not_count_as_running_until_the_template_is_right(start, cluster):
    def template(memory):
        store = {"name": "store", "resources": {"requests": {"memory": memory}, "limits": {"memory": memory}}}
        return {"podTemplate": {"spec": {"containers": [trainer, store]}}}

    run = start()
    trainer = run.document["spec"]["launch"]["podTemplate"]["spec"]["containers"][0]
    run.patch(launch=template("1Ti"))
    cluster.wait("attempt 2", lambda: run.jobs == [f"{run.name}-a2"], within_s=120)
    cluster.wait("workers", lambda: "2 of 2 workers" in run.condition("Running")["message"], within_s=120)
    cluster.wait("its cause", lambda: run.condition("Running")["reason"] == "Unschedulable")
    assert "the rendezvous pod is not ready; pod small-gpt-rdzv-" in run.condition("Ready")["message"]
    run.patch(launch=template("1Gi"))
    cluster.wait("attempt 3", lambda: run.jobs == [f"{run.name}-a3"], within_s=120)
    run.until("Running")
