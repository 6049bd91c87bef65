import dataclasses

import pytest

from rightsizer_engine.domain.reading import Missing, Reading
from rightsizer_operator.cluster.demand import queued, unscheduled
from rightsizer_operator.measure.gpu_counters import Counters
from rightsizer_operator.values.nodes import ClusterNode, Taint
from rightsizer_telemetry.readings import shown

NODES = tuple(
    ClusterNode(name=name, product=product, gpus=8, labels={"nvidia.com/gpu.product": product})
    for name, product in (("n1", "NVIDIA-H100-80GB-HBM3"), ("n2", "NVIDIA-A100-SXM4-80GB"))
)
PLAN = ("team", "demo")
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
SEEN = Reading(window_s=600.0, age_s=10.0, coverage=1.0, samples=40)


def pod(*, gpus=1, phase="Pending", selector=None, **more):
    asked = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    spec = {"containers": [{"resources": asked}], "nodeSelector": selector or {}, **more}
    return {"metadata": {}, "spec": spec, "status": {"phase": phase}}


def only(operator):
    """A node affinity for, or against, the H100's product label."""
    expression = {"key": "nvidia.com/gpu.product", "operator": operator, "values": list(H100.values())}
    terms = [{"matchExpressions": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


@pytest.mark.parametrize(
    ("pods", "wanted"),
    [
        ([pod()], {"H100-SXM5-80GB", "A100-SXM4-80GB"}),
        ([pod(selector=H100)], {"H100-SXM5-80GB"}),
        ([pod(selector={"zone": "moon"})], set()),
        ([pod(gpus=9)], set()),
        ([pod(affinity=only("NotIn"))], {"A100-SXM4-80GB"}),
        ([pod(affinity=only("In"))], {"H100-SXM5-80GB"}),
        ([pod(tolerations=[{"key": "nobody"}])], {"H100-SXM5-80GB", "A100-SXM4-80GB"}),
        ([pod(gpus=0)], set()),
        ([pod(nodeName="n1")], set()),
        ([pod(phase="Failed")], set()),
        ([{**pod(), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}], set()),
    ],
    ids=[
        "any",
        "a-type",
        "no-such-node",
        "too-large",
        "not-here",
        "only-here",
        "tolerant",
        "no-gpu",
        "placed",
        "over",
        "leaving",
    ],
)
def test_unscheduled_pods_are_gpu_demand(pods, wanted):
    assert unscheduled(pods, NODES) == wanted


def test_a_tainted_node_counts_only_for_pods_that_tolerate_it():
    tainted = [dataclasses.replace(node, taints=(Taint(key="team", value="a"),)) for node in NODES]
    tolerant = pod(tolerations=[{"key": "team", "operator": "Exists"}])
    assert (unscheduled([pod()], tainted), len(unscheduled([tolerant], tainted))) == (frozenset(), 2)


@pytest.mark.parametrize(
    ("condition", "more", "waits"),
    [
        ("Admitted", {}, True),
        ("QuotaReserved", {}, False),
        ("Finished", {}, False),
        ("Admitted", {"active": False}, False),
        ("Admitted", {"owner": "ours"}, False),
    ],
    ids=["queued", "has-quota", "finished", "stopped", "ours"],
)
def test_kueue_workloads_without_quota_are_gpu_demand(condition, more, waits):
    raw = {
        "metadata": {
            "namespace": "team",
            "ownerReferences": [{"kind": "Job", "name": more.get("owner", "theirs")}],
        },
        "spec": {"active": more.get("active", True), "podSets": [{"template": pod()}]},
        "status": {"conditions": [{"type": condition, "status": "False" if waits else "True"}]},
    }
    assert bool(queued([raw], NODES, own={("team", "Job", "ours")})) is waits


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        (Counters(), ""),
        (Counters(awaited=True, readings={PLAN: SEEN}, at_s=95.0), ""),
        (
            Counters(
                awaited=True, readings=Missing(reason="Prometheus does not answer: ConnectError"), at_s=95.0
            ),
            "does not answer: ConnectError",
        ),
        (Counters(awaited=True, readings={PLAN: SEEN}, at_s=30.0), "has not answered for"),
        (Counters(awaited=True, at_s=95.0), "has not been asked about it"),
        (Counters(awaited=True, readings={PLAN: shown(Reading())}, at_s=95.0), "does not show it"),
    ],
    ids=["none-awaited", "seen", "down", "slow", "new", "empty"],
)
def test_missing_gpu_metrics_are_explained(counters, words):
    found = counters.reading(PLAN, now_s=100.0, every_s=10.0)
    assert isinstance(found, Missing) is bool(words)
    assert words in str(found)
