"""The chart grants exactly the rights in use: read from the audit log, so it comes after the other tests."""

import json
import time
from pathlib import Path

import pytest
import yaml
from planrun import IDLE, PLANS

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

CHART = Path(__file__).resolve().parents[3] / "helm" / "rightsizer"
FAULTS = "test_operator_faults.py"
PLAN_READ = ("rightsizer.dev", "trainingplans", "get")
DEEPSPEED = IDLE | {"framework": "deepspeed", "command": ["train.py"]}


# No request asks for it: the admission plugin OwnerReferencesPermissionEnforcement does, for each child
FINALIZERS = ("rightsizer.dev", "trainingplans/finalizers", "update")
SUSPENSION = {
    ("rightsizer.dev", "trainingplans", "patch"),  # of an idle plan, in tests/e2e/loop: it needs a Prometheus
    ("jobset.x-k8s.io", "jobsets", "patch"),  # in operator/carriers, at night
    ("trainer.kubeflow.org", "trainjobs", "patch"),
}
"""Where the operator suspends."""
OTHERS = ("kueue.x-k8s.io", "jobset.x-k8s.io", "trainer.kubeflow.org", "resource.k8s.io")
"""API groups of controllers that only some tests install, and of claims, which only some operators make."""
FOUND = {
    ("jobset.x-k8s.io", "jobsets", "list"),
    ("trainer.kubeflow.org", "trainjobs", "list"),
    ("trainer.kubeflow.org", "trainingruntimes", "list"),
    ("trainer.kubeflow.org", "trainingruntimes", "patch"),
    ("resource.k8s.io", "resourceclaimtemplates", "patch"),
}
"""What the operator does with an object that exists before its status says so: it died between two writes."""


def _granted(helm):
    """The operator's rights in the chart; its cluster roles for users are aggregated."""
    rendered = helm("template", "rightsizer", CHART, "--namespace", "rightsizer-system")
    rules = [
        rule
        for document in yaml.safe_load_all(rendered)
        if document and document["kind"] in {"Role", "ClusterRole"}
        if not any("aggregate-to" in label for label in document["metadata"]["labels"])
        for rule in document["rules"]
    ]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _used(cluster, operator):
    """Verbs of the operator that were allowed, and those that were not."""
    log = Path("/var/lib/rightsizer-cluster") / cluster.name / "log" / "audit.jsonl"
    allowed, refused = set(), set()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] != f"system:serviceaccount:{operator}:rightsizer":
            continue
        asked, code = event.get("objectRef"), event["responseStatus"]["code"]
        if asked is None:
            continue
        subresource = f"/{asked['subresource']}" if "subresource" in asked else ""
        what = (asked.get("apiGroup", ""), asked["resource"] + subresource)
        # a patch that creates needs both rights
        verbs = {event["verb"]} | ({"create"} if event["verb"] == "patch" and code == 201 else set())
        (refused if code == 403 else allowed).update((*what, verb) for verb in verbs)
    return allowed, refused


def _repaired(run, operator):
    """Remove our label from every support; the next leader reads the cluster again and restores it."""
    ours = "app.kubernetes.io/managed-by"
    names = {"service": "rdzv", "replicaset": "rdzv", "configmap": "a1", "networkpolicy": "worker"}
    named = [f"{kind}/{run.name}-{name}" for kind, name in names.items()]
    run.kubectl("label", *named, f"{ours}-")
    run.cluster.kubectl("delete", "pods", "--all", f"--namespace={operator}", "--wait=false")

    def back():
        items = json.loads(run.kubectl("get", *named, "--output=json"))["items"]
        return all(item["metadata"]["labels"].get(ours) == "rightsizer" for item in items)

    run.cluster.wait("the labels are back", back, within_s=180)


def _contradicted(run):
    """Change the plan while the operator handles the previous change, until a write comes too late."""
    path = f"{PLANS.format(run.namespace)}/{run.name}"

    def late():
        for tokens in ("90M", "100M"):
            run.api.patch(path, {"spec": {"workload": {"tokens": tokens}}})
            for _ in range(20):
                run.api.patch(path, {"metadata": {"annotations": {"test": str(time.monotonic())}}})
        return PLAN_READ in _used(run.cluster, "rightsizer-system")[0]

    run.cluster.wait("a plan read anew", late, within_s=30)


def test_every_verb_is_granted_because_it_is_used(request, cluster, operator, helm, start):
    once = {"workload": {"tokens": "20k"}, "resources": {"gpus": 1}, "ttlAfterFinished": "1s"}
    brief = start(metadata={"name": "brief"}, **once)
    run = start(launch=DEEPSPEED, layout={"microBatch": 4})
    run.cluster.wait("a Job with its settings", lambda: run.jobs, within_s=60)
    _repaired(run, operator)
    _contradicted(run)
    cluster.wait(
        "the finished plan is deleted",
        lambda: brief.name not in run.kubectl("get", "tp", "--output=name"),
        within_s=180,
    )
    allowed, refused = _used(cluster, operator)
    granted = _granted(helm) - {FINALIZERS}
    assert allowed <= granted
    assert not {verb for verb in refused - allowed if verb not in granted}
    unused = granted - allowed - SUSPENSION - FOUND
    for group in OTHERS:  # their tests come before these; left out, their verbs cannot have been used
        theirs = {verb for verb in granted if verb[0] == group}
        unused -= set() if theirs & allowed else theirs
    if unused and FAULTS not in {item.path.name for item in request.session.items}:
        pytest.skip(f"only {FAULTS} makes the operator use these; run it too: {sorted(unused)}")
    assert not unused
