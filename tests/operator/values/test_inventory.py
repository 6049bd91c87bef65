import datetime as dt

import pytest

from rightsizer_operator.cluster.cache import bound_gpus
from rightsizer_operator.values.inventory import Inventory, Node, NodeRequirements, Taint

H100, KIND = "NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def node(name="n1", **fields):
    return Node(**{"name": name, "product": H100, "gpus": 8} | fields)


def raw(ready="True", **spec):
    return {
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": H100}},
        "spec": spec,
        "status": {
            "allocatable": {"nvidia.com/gpu": "7"},
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-21T11:59:00Z"}],
        },
    }


def test_a_node_s_gpus_are_its_allocatable_count():
    read = Node.of(raw())
    assert (read.product, read.gpus, read.ready, read.cordoned) == (H100, 7, True, False)


def test_a_heartbeat_changes_no_node():
    beat = raw()
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-21T12:00:00Z"
    assert Node.of(beat) == Node.of(raw())


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_dead_after_the_timeout(ready):
    inventory = Inventory(nodes=(Node.of(raw(ready)),))
    assert not inventory.is_dead("n1", now=NOW, after_s=61)
    assert inventory.is_dead("n1", now=NOW, after_s=60)
    assert inventory.is_dead("deleted", now=NOW, after_s=60)


def test_gpus_that_others_hold_are_not_free_but_count_in_the_total():
    inventory = Inventory(nodes=(node(), node("n2")), bound={"n1": 5}, claimed={KIND: 2})
    assert inventory.free(NodeRequirements(), KIND, 1) == 3 + 8 - 2
    assert inventory.total(NodeRequirements(), KIND, 1) == 16


def test_free_gpus_are_counted_in_whole_pods():
    inventory = Inventory(nodes=(node(), node("n2")), bound={"n1": 1})
    assert inventory.free(NodeRequirements(), KIND, 8) == 8
    assert inventory.free(NodeRequirements(), KIND, 4) == 12


@pytest.mark.parametrize(
    ("fields", "requirements", "gpus"),
    [
        ({"labels": {"pool": "a"}}, NodeRequirements(selector={"pool": "a"}), 8),
        ({"labels": {"pool": "b"}}, NodeRequirements(selector={"pool": "a"}), 0),
        ({"taints": (Taint(key="team", value="nlp"),)}, NodeRequirements(), 0),
        (
            {"taints": (Taint(key="team", value="nlp"),)},
            NodeRequirements(tolerations=({"operator": "Exists"},)),
            8,
        ),
        ({"taints": (Taint(key="x", effect="PreferNoSchedule"),)}, NodeRequirements(), 8),
        ({"product": "NVIDIA-A100-SXM4-80GB"}, NodeRequirements(types=(KIND,)), 0),
        ({"product": "a-gpu-nobody-knows"}, NodeRequirements(), 0),
        ({"product": f"{H100}-MIG-1g.10gb"}, NodeRequirements(), 0),
    ],
    ids=["selected", "not-selected", "tainted", "tolerated", "preference", "type", "unknown", "slices"],
)
def test_only_nodes_that_the_plan_may_use_count(fields, requirements, gpus):
    inventory = Inventory(nodes=(node(**fields),))
    assert sum(n.gpus for n in inventory.usable(requirements)) == gpus


def test_the_summary_lists_unusable_gpus_separately():
    summary = Inventory(nodes=(node(), node("n2", cordoned=True))).summary()
    assert summary == f"8 x {KIND}, 8 x {KIND} on cordoned or not-ready nodes"


def test_bound_gpus_are_those_of_unfinished_pods_on_nodes():
    def pod(node, gpus, phase):
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
        return {"spec": {"nodeName": node, "containers": [{"resources": limits}]}, "status": {"phase": phase}}

    pods = [
        pod("n1", 2, "Running"),
        pod("n1", 1, "Pending"),
        pod("n1", 4, "Succeeded"),
        pod(None, 8, "Pending"),
    ]
    assert bound_gpus(pods) == {"n1": 3}
