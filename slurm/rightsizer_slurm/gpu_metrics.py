"""GPU metrics of Slurm's jobs from Prometheus, as Readings by job. Without an answer nothing is known."""

from collections.abc import Callable, Sequence

from rightsizer.reading import Reading
from rightsizer_slurm.jobs import Job
from rightsizer_telemetry import readings
from rightsizer_telemetry.client import Access, Prometheus

__all__ = ["reader"]


def reader(access: Access, *, window_s: float) -> Callable[[Sequence[Job]], dict[int, Reading]]:
    """What to ask for a sweep's jobs: a few questions for all of them."""
    client = Prometheus(access)

    def read(jobs: Sequence[Job]) -> dict[int, Reading]:
        asked = [
            readings.Job(
                key=job.job_id,
                executor="slurm",
                workload=str(job.job_id),
                window_s=window_s,
                gpus=job.gpus,
            )
            for job in jobs
            if job.running
        ]
        found = readings.read(client, asked) if asked else {}
        return {job.job_id: found[job.job_id] for job in jobs if job.job_id in found}

    return read
