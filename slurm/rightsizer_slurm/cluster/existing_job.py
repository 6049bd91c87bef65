"""A running Slurm job that somebody else launched."""

from rightsizer_engine.errors import InputError
from rightsizer_launch.running.existing_job import ExistingJob
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.pools import engine_name
from rightsizer_slurm.cluster.slurm_cli import SlurmError


def slurm_job(job_id: int, commands: SlurmCommands | None = None) -> ExistingJob:
    """A job as Slurm shows it. InputError if it does not run or holds no GPUs."""
    commands = commands or SlurmCommands()
    try:
        job, cluster = commands.job(job_id), commands.cluster()
    except SlurmError as error:
        raise InputError("--slurm", value=job_id, remedy=str(error)) from None
    if job is None or not job.running or not job.gpus:
        remedy = "is not a running job with GPUs; see squeue"
        raise InputError("--slurm", value=job_id, remedy=remedy)
    partition = cluster.partition(job.partition)
    nodes = [node for node in (cluster.nodes_of(partition) if partition else ()) if node.gpus]
    gres = job.gpu_type or (nodes[0].gpu if len({node.gpu for node in nodes}) == 1 else "")
    return ExistingJob(
        name=f"Slurm job {job_id}",
        gpus=job.gpus,
        gpu=engine_name(gres, nodes),
        gpus_per_node=-(-job.gpus // max(1, job.nodes)),
        started_s=job.started_s,
        plan=job.comment,
    )
