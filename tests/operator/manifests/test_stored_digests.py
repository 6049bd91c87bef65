"""The digests that earlier versions wrote: another digest of an equal plan would restart users' training."""

import pytest

from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.kueue import Queue
from rightsizer_operator.values.nodes import ClusterNode

VOLUME = {"name": "ckpt", "persistentVolumeClaim": {"claimName": "c"}}
MOUNTED = {
    "metadata": {"annotations": {"team": "a"}},
    "spec": {
        "containers": [{"name": "trainer", "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}]}],
        "volumes": [VOLUME],
    },
}
PLANS = {
    "ddp": {},
    "fixed": {"elasticity": {"mode": "Off"}},
    "fsdp": {"launch": {"framework": "fsdp"}},
    "deepspeed": {"launch": {"framework": "deepspeed"}},
    "megatron": {"launch": {"framework": "megatron"}, "resources": {"gpusPerNode": 2}},
    "custom": {"launch": {"framework": "custom", "args": ["--dp={layout.dp}", "--mb={layout.microBatch}"]}},
    "variables": {"launch": {"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]}},
    "template": {"launch": {"podTemplate": MOUNTED, "workingDir": "/src", "args": ["--seed", "1"]}},
    "jobset": {"launch": {"as": "JobSet"}},
    "wide pods": {"resources": {"gpus": 4, "gpusPerNode": 4}},
    "any size": {"resources": {"gpus": None, "gpusPerNode": None, "minGPUs": None, "maxGPUs": 8}},
    "AMD": {"resources": {"gpuTypes": ["MI300X"]}},
    "topology": {},
}


STORED = {
    "ddp": "150c394efa078554",
    "fixed": "a2e65597f92dac9c",
    "fsdp": "150c394efa078554",
    "deepspeed": "0b8e854051b91fd7",
    "megatron": "142079f4d9116173",
    "custom": "48846a6e68b7f465",
    "variables": "2b49444f1102bddf",
    "template": "642ed37547022aa3",
    "jobset": "2913257e5140d7e1",
    "wide pods": "e919b51d3fba1e0b",
    "any size": "76cd967728548e7a",
    "AMD": "45a45e57216c09fa",
    "topology": "a2e65597f92dac9c",
}
"""As commit b6001df wrote them on the Jobs of these plans."""


def digest(fake_cluster, name):
    cluster = fake_cluster(PLANS[name])
    if name == "AMD":
        node = ClusterNode(name="n0", product="AMD_Instinct_MI300X_OAM", gpus=8)
        cluster.inventory = Inventory(nodes=(node, node))
    if name == "topology":
        cluster.queue = Queue(name="q", levels=("block", "kubernetes.io/hostname"))
    cluster.settle()
    (job,) = cluster.jobs.values()
    held = job.get("spec", {}).get("replicatedJobs")
    notes = held[0]["template"]["metadata"] if held else job["metadata"]
    return notes["annotations"]["rightsizer.dev/launch-digest"]


@pytest.mark.parametrize("name", PLANS)
def test_an_upgrade_of_the_operator_restarts_no_training(fake_cluster, name):
    assert digest(fake_cluster, name) == STORED[name]
