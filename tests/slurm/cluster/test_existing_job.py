"""A Slurm job that somebody else launched."""

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_launch.running.existing_job import ExistingJob
from rightsizer_slurm.cluster.existing_job import slurm_job
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.snapshot import Partition, SlurmCluster, SlurmNode


class Commands:
    """A Slurm that reports one job."""

    def __init__(self, job):
        self._job = job

    def job(self, _job_id):
        return self._job

    def cluster(self):
        return SLURM


SLURM = SlurmCluster(
    partitions=(Partition(name="gpu", nodes=("n1", "n2")),),
    nodes=(SlurmNode(name="n1", gpu="h100", gpus=8), SlurmNode(name="n2", gpu="h100", gpus=8)),
)


def test_a_slurm_job_has_its_type_from_its_nodes():
    job = SlurmJob(job_id=7, states=("RUNNING",), partition="gpu", nodes=2, gpus=16, started_s=1.0)
    found = slurm_job(7, Commands(job))
    assert found == ExistingJob(
        name="Slurm job 7", gpus=16, gpu="H100-SXM5-80GB", gpus_per_node=8, started_s=1.0, plan=""
    )
    for absent in (None, SlurmJob(job_id=7, states=("PENDING",), gpus=8)):
        with pytest.raises(InputError, match="not a running job"):
            slurm_job(7, Commands(absent))
