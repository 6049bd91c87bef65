import datetime as dt

import pytest

from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode, NodeRequirements, Taint

H100, KIND = "NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def node(name="n1", **fields):
    return ClusterNode(**{"name": name, "product": H100, "gpus": 8} | fields)


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
    read = ClusterNode.of(raw())
    assert (read.product, read.gpus, read.ready, read.cordoned) == (H100, 7, True, False)


def test_a_heartbeat_changes_no_node():
    beat = raw()
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-21T12:00:00Z"
    assert ClusterNode.of(beat) == ClusterNode.of(raw())


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_dead_after_the_timeout(ready):
    inventory = Inventory(nodes=(ClusterNode.of(raw(ready)),))
    assert not inventory.is_dead("n1", now=NOW, after_s=61)
    assert inventory.is_dead("n1", now=NOW, after_s=60)
    assert inventory.is_dead("deleted", now=NOW, after_s=60)


def test_gpus_that_others_hold_are_not_free_but_count_in_the_total():
    inventory = Inventory(nodes=(node(), node("n2")), held={"n1": 5})
    assert inventory.free(NodeRequirements(), KIND, 1) == 3 + 8
    assert inventory.total(NodeRequirements(), KIND, 1) == 16


def test_free_gpus_are_counted_in_whole_pods():
    inventory = Inventory(nodes=(node(), node("n2")), held={"n1": 1})
    assert inventory.free(NodeRequirements(), KIND, 8) == 8
    assert inventory.free(NodeRequirements(), KIND, 4) == 12


@pytest.mark.parametrize(
    ("held", "room"), [({}, 16), ({"n1": 1}, 8), ({"n1": 1, "n2": 5}, 7)], ids=["all", "a-node", "a-part"]
)
def test_the_room_for_a_job_is_whole_nodes_or_a_part_of_one(held, room):
    inventory = Inventory(nodes=(node(), node("n2")), held=held)
    assert inventory.room(NodeRequirements(), KIND, 8) == room


@pytest.mark.parametrize(
    ("pods", "gpus", "taken"),
    [(1, 4, {"n2": 4}), (3, 3, {"n1": 3, "n2": 6}), (9, 8, {"n2": 8})],
    ids=["emptiest", "spread", "no-more-than-fit"],
)
def test_pods_are_expected_on_the_emptiest_nodes(pods, gpus, taken):
    inventory = Inventory(nodes=(node(), node("n2"), node("n3", cordoned=True)), held={"n1": 2})
    assert inventory.placed(NodeRequirements(), gpus, pods) == taken


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
        ({"product": f"{H100}-MIG-mixed"}, NodeRequirements(), 0),
    ],
    ids=["selected", "not-selected", "tainted", "tolerated", "preference", "type", "unknown", "slices"],
)
def test_only_nodes_that_the_plan_may_use_count(fields, requirements, gpus):
    inventory = Inventory(nodes=(node(**fields),))
    assert sum(n.gpus for n in inventory.usable(requirements)) == gpus


def test_mig_slices_are_sized_only_if_the_plan_names_them():
    inventory = Inventory(nodes=(node(product=f"{H100}-MIG-1g.10gb"), node("n2")))
    assert inventory.sizes(NodeRequirements()) == {KIND: 8}
    named = NodeRequirements(types=(f"{KIND}-MIG-1g.10gb",))
    assert inventory.sizes(named) == {f"{KIND}-MIG-1g.10gb": 8}
    assert inventory.products(f"{KIND}-MIG-1g.10gb") == (f"{H100}-MIG-1g.10gb",)


def test_the_summary_lists_unusable_gpus_separately():
    summary = Inventory(nodes=(node(), node("n2", cordoned=True))).summary()
    assert summary == f"8 x {KIND}, 8 x {KIND} on cordoned or not-ready nodes"


def test_a_message_names_a_few_nodes_and_leaves_out_other_gpu_types():
    others = tuple(node(f"m{i}", cordoned=True) for i in range(9))
    inventory = Inventory(nodes=(node(product="NVIDIA-A100-SXM4-80GB"), node("n2"), *others), held={"n2": 7})
    text = inventory.shortfall(NodeRequirements(types=(KIND,)), 8)
    named = [f"node m{i} is cordoned" for i in range(3)]
    assert text == "; ".join(["node n2 has 1 of 8 GPUs free", *named, "6 more nodes lack something"])
