"""Attacks on a plan from the pod network, and on the operator from a plan's workers.

Nobody here has a right in the plan's namespace. The test cluster's network enforces no policies: only the
signature protects the rendezvous state.
"""

import json
from pathlib import Path

import pytest
import yaml
from planrun import IDLE

pytestmark = pytest.mark.kubernetes

FAT = Path(__file__).with_name("harness") / "fat_metrics.py"
ATTACK = Path(__file__).resolve().parents[1] / "rendezvous_attack.py"
OWNED = "own/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/rightsizer-run/owned"


@pytest.fixture
def attacker(cluster):
    """attacker(host): a pod in a namespace of its own that overwrites each rendezvous state of the store."""
    cluster.kubectl("create", "namespace", "attacker")
    cluster.wait(
        "an account", lambda: bool(cluster.api.get("serviceaccounts", namespace="attacker")["items"])
    )

    def attack(host):
        container = {
            "name": "attacker",
            "image": "ghcr.io/acme/train:1.4",
            "command": ["python", str(ATTACK), host, "29400", "/var/run/rightsizer/owned"],
        }
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "attacker"}, "spec": spec}
        cluster.apply(yaml.safe_dump(pod), "attacker")
        return lambda: cluster.logs("attacker", "attacker").count("overwritten")

    yield attack
    cluster.kubectl("delete", "namespace", "attacker", "--wait=false")


def owned(run):
    """Workers in which the attacker's command has run."""
    root = run.cluster.kubeconfig.parent
    paths = [
        root / pod["spec"].get("nodeName", "") / OWNED.format(pod["metadata"]["uid"]) for pod in run.pods()
    ]
    return [path for path in paths if path.exists()]


@pytest.mark.nightly
def test_a_forged_rendezvous_state_runs_nothing_and_the_plan_trains_on(start, attacker):
    run = start()
    run.steps_with(2)
    overwritten = attacker(f"{run.name}-rdzv.{run.namespace}.svc")
    run.cluster.wait("an attack", lambda: overwritten() > 5)
    pod = run.pods()[0]["metadata"]["name"]
    run.kubectl("delete", "pod", pod, "--grace-period=0", "--force")  # the workers must meet again
    run.cluster.wait("another attack", lambda: overwritten() > 20)
    assert not owned(run)
    run.kubectl("delete", "pod", "attacker", "--namespace=attacker", "--wait")
    before = run.last()[2]
    run.steps_with(2, after=before)
    assert not owned(run)


def test_a_plan_s_policies_and_key_are_its_own(start):
    run = start(launch=IDLE)
    run.cluster.wait("a Job", lambda: bool(run.jobs))
    policies = json.loads(run.kubectl("get", "networkpolicies", "--output=json"))["items"]
    names = {policy["metadata"]["name"] for policy in policies}
    assert names == {f"{run.name}-rendezvous", f"{run.name}-worker"}
    (secret,) = (s for s in json.loads(run.kubectl("get", "secrets", "--output=json"))["items"])
    owners = {p["metadata"]["ownerReferences"][0]["uid"] for p in [*policies, secret]}
    plan = json.loads(run.kubectl("get", "tp", run.name, "--output=json"))
    assert owners == {plan["metadata"]["uid"]}


def test_workers_with_too_many_metrics_get_a_warning_and_keep_running(start):
    run = start(launch={"command": [str(FAT)]}, resources={"gpus": 1, "maxGPUs": 1})
    run.cluster.wait("the reason", lambda: run.condition("MetricsAvailable")["reason"] == "TooLarge")
    assert "more than 256 KiB" in run.condition("MetricsAvailable")["message"]
    assert run.state == "Running"
