"""Inspects each live GPU job: its user, its plan, its records. Read-only.

A job's comment names its run's directory. Its files are untrusted: only regular files of the job's user are
read, and a job with an invalid file is treated as a job without a plan.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

from rightsizer_api import loads, sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.sizing import ResolvedPlan
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.values import immutable
from rightsizer_launch.running.marks import Mark
from rightsizer_launch.worker.progress import DONE, PROGRESS
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.comment import is_ours, parse, written
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.monitor import size_records
from rightsizer_slurm.monitor.publish import TAIL_BYTES
from rightsizer_slurm.monitor.recorded import Recorded, RecordMemory
from rightsizer_slurm.monitor.size_records import SizeRecord

_MOST_GIVEN_UP = 32
_MOST_PLAN_BYTES = 2**17
_MOST_PLANS = 1024


@immutable
class InspectedJob:
    """A job; if `rightsizer sbatch` submitted it, also its plan, its sizing and its newest records.

    `marks` are the records as input to the resize decision. `launches_s` are the starts of its batch script
    whose records were read. `given_up` are the sizes that completed no step and were rolled back. `note` is
    why a job with a rightsizer comment is not managed.
    """

    job: SlurmJob
    resolved: ResolvedPlan | None = None
    run: runfile.RunFile | None = None
    folder: str = ""
    marks: Sequence[Mark] = ()
    launches_s: Sequence[float] = ()
    done: bool = False
    given_up: Sequence[SizeRecord] = ()
    note: str = ""

    @property
    def plan(self) -> TrainingPlan | None:
        """The plan as its user wrote it."""
        return self.resolved.plan if self.resolved else None

    @property
    def ours(self) -> bool:
        """Whether rightsizer submitted it and may resize it."""
        return self.plan is not None and self.run is not None and not self.job.special


def live_gpu_jobs(jobs: Sequence[SlurmJob]) -> tuple[SlurmJob, ...]:
    """Pending and running jobs with GPUs."""
    return tuple(job for job in jobs if job.live and job.gpus)


def monitored_job(
    job: SlurmJob, *, runs: Path | None = None, memory: RecordMemory | None = None
) -> InspectedJob:
    """The job with the contents of its run directory, or of its copy in `runs` (`monitor.publish`).

    `memory` has the records that earlier looks read.
    """
    memory = memory or RecordMemory()
    if not is_ours(job.comment):
        return InspectedJob(job=job)
    try:
        folder = parse(written(job.comment)).run
    except RightsizerError as error:
        return InspectedJob(job=job, note=str(error))
    if not folder.startswith("/"):
        return InspectedJob(job=job, note="was not submitted by rightsizer sbatch")
    own = _of_folder(job, Path(folder), memory)
    if runs is None or own.ours:
        return own
    copy = _of_folder(job, runs / str(job.job_id), memory)
    return copy if copy.ours else own


def _of_folder(job: SlurmJob, folder: Path, memory: RecordMemory) -> InspectedJob:
    text = runfile.text_of(folder / "plan.yaml", owner=job.user_id, most_bytes=_MOST_PLAN_BYTES)
    if text is None:
        return InspectedJob(job=job, note=f"no plan.yaml of user {job.user} in {folder}")
    resolved = _plan_of(text, str(folder / "plan.yaml"))
    if isinstance(resolved, str):
        return InspectedJob(job=job, note=resolved)
    try:
        run = runfile.read_own(folder, owner=job.user_id)
    except RightsizerError as error:
        return InspectedJob(job=job, note=str(error))
    if run is None or run.job_id != job.job_id:
        return InspectedJob(job=job, note=f"{folder} is the directory of another job")
    tail = runfile.text_of(folder / PROGRESS, owner=job.user_id, tail_bytes=TAIL_BYTES) or ""
    done = runfile.text_of(folder / DONE, owner=job.user_id) is not None
    sizes = size_records.of_job(
        runfile.text_of(folder / size_records.NAME, owner=job.user_id) or "", job.job_id
    )
    recorded = memory.read(job.job_id, tail, checkpoint_interval_s=run.checkpoint_interval_s)
    return InspectedJob(
        job=job,
        resolved=resolved,
        run=run,
        folder=str(folder),
        marks=recorded.marks,
        launches_s=_launches_s(sizes, recorded),
        done=done,
        given_up=size_records.given_up(sizes)[-_MOST_GIVEN_UP:],
    )


@functools.lru_cache(maxsize=_MOST_PLANS)
def _plan_of(text: str, name: str) -> ResolvedPlan | str:
    """The plan, or what is wrong with it. It is parsed and resolved once: a large text takes a second."""
    try:
        return sizing.resolve(loads(text, name=name))
    except RightsizerError as error:
        return str(error)


def _launches_s(sizes: Sequence[SizeRecord], recorded: Recorded) -> tuple[float, ...]:
    """The starts whose first step is among the marks."""
    starts = (row.time for row in sizes if row.event == size_records.START)
    return tuple(at_s for at_s in starts if at_s > recorded.complete_from_s)
