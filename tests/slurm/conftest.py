"""A cluster of two unlike partitions, as values."""

import pytest

from rightsizer_slurm.cluster.snapshot import Node, Partition, SlurmCluster


@pytest.fixture
def here() -> SlurmCluster:
    """The cluster of the real tests: four nodes of 8 h100, two of 4 a100, all idle."""
    h100 = [Node(name=f"n{i}", gpu="h100", gpus=8, cpus=64) for i in range(1, 5)]
    a100 = [Node(name=f"a{i}", gpu="a100", gpus=4, cpus=32) for i in range(1, 3)]
    partitions = (
        Partition(name="h100", nodes=tuple(n.name for n in h100), default=True, max_time_s=7 * 86_400.0),
        Partition(name="a100", nodes=tuple(n.name for n in a100), max_time_s=2 * 86_400.0),
    )
    return SlurmCluster(partitions=partitions, nodes=(*h100, *a100))
