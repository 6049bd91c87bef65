import pytest
from tests.operator.kubectl.conftest import Server, Where

from rightsizer_engine.search.types import Plan
from rightsizer_operator.kubectl.client import Client
from rightsizer_operator.kubectl.plans import size_on_cluster

NODE = {
    "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
LAUNCH = {"framework": "ddp", "image": "train:1", "command": ["train.py"]}


def asked(plan, nodes):
    plan["spec"]["launch"] = LAUNCH
    server = Server(plan, nodes=nodes)
    return size_on_cluster(Client(where=Where(), run=server), name="demo", file=None)


def test_a_live_plan_is_sized_on_the_clusters_own_gpus(plan):
    found = asked(plan, [NODE])
    assert isinstance(found, Plan)
    assert found.option.cluster.gpu.name == "H100-SXM5-80GB"
    assert found.option.gpus <= 8


def test_a_cluster_without_gpus_is_one_line_of_error(plan):
    with pytest.raises(ValueError, match="no GPU nodes"):
        asked(plan, [])
