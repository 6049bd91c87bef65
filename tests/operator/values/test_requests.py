import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode, NodeRequirements
from rightsizer_operator.values.quantities import parse_amount
from rightsizer_operator.values.requests import Allowance, Loads, allowance, least, pod_requests

H100 = "NVIDIA-H100-80GB-HBM3"
GIB = 2.0**30


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [
        ("2", 2.0), (0.5, 0.5), ("250m", 0.25), ("64Gi", 64 * GIB), ("129e6", 129e6), ("1.5k", 1500.0),
        ("100u", 1e-4), ("1E", 1e18), ("1Ei", 2.0**60), ("", 0.0), ("-1", 0.0), ("1GB", 0.0), (None, 0.0),
    ],
)  # fmt: skip
def test_an_amount_is_read_as_kubernetes_writes_it(quantity, amount):
    assert parse_amount(quantity) == pytest.approx(amount)


def container(cpu, **more):
    return {"resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cores"),
    [
        ({"containers": [container("1"), container("500m"), {}]}, 1.5),
        ({"containers": [container("1")], "initContainers": [container("3"), container("2")]}, 3.0),
        ({"containers": [container("1")], "initContainers": [container("2", restartPolicy="Always")]}, 3.0),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1.25),
        ({"containers": [container("1")], **container("4")}, 4.0),
    ],
    ids=["containers", "init", "sidecar", "overhead", "the-pod-itself"],
)
def test_a_pod_requests_what_the_scheduler_counts(spec, cores):
    assert pod_requests(spec) == pytest.approx({"cpu": cores, "memory": 0.0})


@given(
    gpus=st.integers(1, 16),
    others=st.floats(0, 200),
    holders=st.lists(st.tuples(st.integers(1, 8), st.floats(0, 200))),
    cores=st.floats(0, 500),
)
def test_all_gpus_of_a_node_can_be_used_at_once_whatever_the_pods_on_it_request(gpus, others, holders, cores):
    held = sum(count for count, _ in holders)
    requested = others + sum(amount for _, amount in holders)
    loads = Loads(
        others={"n1": {"cpu": others}},
        holders={"n1": tuple((count, {"cpu": amount}) for count, amount in holders)},
        known=True,
    )
    part = loads.per_gpu("n1", {"cpu": cores}, gpus)["cpu"]
    assert part >= 0.0
    if held < gpus and requested <= cores:  # else the node is full, or over-committed without us
        assert requested + (gpus - held) * part <= cores * (1 + 1e-9)
    assert math.isfinite(part) or held >= gpus


def inventory(*cores, loads=None):
    """Nodes of eight GPUs and so many cores."""
    nodes = (
        ClusterNode(name=f"n{i}", product=H100, gpus=8, allocatable={"cpu": each, "memory": 64 * GIB})
        for i, each in enumerate(cores)
    )
    return Inventory(nodes=tuple(nodes), loads=loads or Loads(known=True))


def test_the_share_of_a_pod_fits_on_each_node_that_it_may_use():
    share = inventory(96.0, 48.0, loads=Loads(others={"n1": {"cpu": 8.0}}, known=True)).share
    assert share(NodeRequirements(), 4) == {"cpu": 20.0, "memory": 32 * GIB}
    assert share(NodeRequirements(), 9) == {}


def test_the_gpus_of_mig_slices_share_their_node_with_its_whole_gpus():
    whole, sliced = (ClusterNode(name="n1", product=H100, gpus=n, allocatable={"cpu": 88.0}) for n in (4, 7))
    both = Inventory(nodes=(whole, sliced), loads=Loads(known=True))
    assert both.share(NodeRequirements(), 1) == {"cpu": 8.0}


@pytest.mark.parametrize(
    "unknown",
    [
        inventory(96.0, loads=Loads()),
        Inventory(nodes=(ClusterNode(name="n", product=H100, gpus=8),)),
        Inventory(),
    ],
    ids=["pods", "node", "no-node"],
)
def test_nothing_is_known_of_a_share_without_the_pods_and_the_nodes(unknown):
    assert unknown.share(NodeRequirements(), 8) == {}


def quota(used="0", **hard):
    return {"status": {"hard": hard, "used": dict.fromkeys(hard, used)}}


def limits(kind, **values):
    return {"spec": {"limits": [{"type": kind, **values}]}}


UNLIMITED = {"cpu": math.inf, "memory": math.inf}


@pytest.mark.parametrize(
    ("quotas", "ranges", "left_gpus", "expected"),
    [
        ([], [], None, UNLIMITED),
        ([quota(**{"requests.cpu": "8050m"})], [], 16, UNLIMITED | {"cpu": 0.5}),
        ([quota(cpu="8050m")], [], None, UNLIMITED | {"cpu": 1.0}),
        ([quota(cpu="9"), quota(used="1", cpu="1500m")], [], 1, UNLIMITED | {"cpu": 0.45}),
        ([quota(used="5", memory="1")], [], 4, UNLIMITED | {"memory": 0.0}),
        ([], [limits("Container", default={"memory": "1Gi"})], None, {"cpu": math.inf}),
        ([], [limits("Pod", max={"memory": "1Gi"}, min={"cpu": "1"})], None, {}),
        ([], [limits("PersistentVolumeClaim", max={"memory": "1Gi"})], None, UNLIMITED),
    ],
    ids=["none", "by-gpus", "half", "the-least", "nothing-left", "default", "range", "of-claims"],
)
def test_a_namespace_allows_what_its_quotas_leave_and_its_limit_ranges_do_not_set(
    quotas, ranges, left_gpus, expected
):
    allowed = allowance(quotas, ranges, left_gpus=left_gpus)
    assert allowed.per_gpu(4) == pytest.approx(expected)


def test_the_least_of_offers_lacks_what_one_of_them_lacks():
    assert least({"cpu": 2.0, "memory": 5.0}, {"cpu": 3.0}) == {"cpu": 2.0}
    assert Allowance().per_gpu(8) == UNLIMITED
