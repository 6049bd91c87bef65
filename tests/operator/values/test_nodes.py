import pytest

from rightsizer_operator.values.nodes import ClusterNode, NodeRequirements, Taint, obstacle, pod_gpus

LABELS = {"pool": "a", "kubernetes.io/hostname": "n1"}
NODE = ClusterNode(name="n1", product="NVIDIA-H100-80GB-HBM3", gpus=8, labels=LABELS)


def affinity(*terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(operator, *values, key="pool"):
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, ""),
        ({"nodeSelector": None, "tolerations": None, "affinity": None}, ""),
        ({"nodeSelector": {"pool": "a"}}, ""),
        ({"nodeSelector": {"pool": "b"}}, "lacks label pool=b"),
        (affinity({"matchExpressions": [expression("In", "a")]}), ""),
        (affinity({"matchExpressions": [expression("NotIn", "a")]}), "does not match the node affinity"),
        (affinity({}, {"matchExpressions": [expression("Exists")]}), ""),
        (affinity({}), "does not match the node affinity"),
        (affinity({"matchFields": [expression("In", "n1", key="metadata.name")]}), ""),
        (affinity({"matchFields": [expression("In", "n2", key="metadata.name")]}), "does not match the node"),
    ],
    ids=["any", "nulls", "pool", "other-pool", "in", "not-in", "or", "empty-term", "by-name", "other-name"],
)
def test_a_node_is_compared_with_a_pod_s_selector_and_affinity(spec, why):
    assert obstacle(NODE, NodeRequirements.of(spec)).startswith(why or "")
    assert bool(obstacle(NODE, NodeRequirements.of(spec))) is bool(why)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "", "operator": "Exists", "effect": ""}, True),
        ({"key": "team", "value": "nlp"}, True),
        ({"key": "team", "value": "cv"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
    ids=["all", "all-empty", "equal", "other-value", "other-effect"],
)
def test_a_taint_keeps_off_pods_that_do_not_tolerate_it(toleration, tolerated):
    tainted = ClusterNode(name="n1", product=NODE.product, gpus=8, taints=(Taint(key="team", value="nlp"),))
    assert bool(obstacle(tainted, NodeRequirements(tolerations=(toleration,)))) is not tolerated


def test_a_pod_s_gpus_are_those_of_its_containers_or_of_the_largest_init_container():
    def container(gpus, kind="limits"):
        return {"resources": {kind: {"nvidia.com/gpu": gpus}}}

    assert pod_gpus({"containers": [container(2), container(1, "requests"), {}]}) == 3
    assert pod_gpus({"containers": [container(2)], "initContainers": [container(8)]}) == 8
