"""What is known of each live GPU job: whose, which plan, what its records say. Reads, decides nothing.

A job's comment names its run's directory. Everything in there is its user's: it is read as data, only where
it is a file of theirs, and a mistake in it makes the job one without a plan.
"""

from collections.abc import Sequence
from pathlib import Path

from rightsizer.errors import RightsizerError
from rightsizer.values import immutable
from rightsizer_api import loads
from rightsizer_api.plan import TrainingPlan
from rightsizer_launch.worker.progress import DONE, PROGRESS, Record
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.comment import is_ours, parse
from rightsizer_slurm.cluster.jobs import Job
from rightsizer_slurm.monitor import size_history
from rightsizer_slurm.monitor.size_history import Sized

__all__ = ["Watched", "live_gpu_jobs", "watched"]

_TAIL_BYTES = 2**20
"""As much of a job's records as is read: some 5,000 steps."""

_MOST_GIVEN_UP = 32


@immutable
class Watched:
    """A job, and of one that `rightsizer sbatch` made: its plan, how it was sized, its newest records.

    `given_up` are the sizes at which it made no step, and that its script left for one that trained.
    `note` says why a job that speaks to rightsizer is not watched as one of ours.
    """

    job: Job
    plan: TrainingPlan | None = None
    run: runfile.RunFile | None = None
    folder: str = ""
    records: Sequence[Record] = ()
    done: bool = False
    given_up: Sequence[Sized] = ()
    note: str = ""

    @property
    def ours(self) -> bool:
        """Whether it may be resized, as far as its making goes."""
        return self.plan is not None and self.run is not None and not self.job.special


def live_gpu_jobs(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Jobs with GPUs that wait or run."""
    return tuple(job for job in jobs if job.live and job.gpus)


def watched(job: Job) -> Watched:
    """The job with what its run's directory holds."""
    if not is_ours(job.comment):
        return Watched(job=job)
    try:
        folder = parse(job.comment).run
    except RightsizerError as error:
        return Watched(job=job, note=str(error))
    if not folder.startswith("/"):
        return Watched(job=job, note="was not submitted by rightsizer sbatch")
    return _of_folder(job, Path(folder))


def _of_folder(job: Job, folder: Path) -> Watched:
    text = runfile.text_of(folder / "plan.yaml", owner=job.user_id)
    if text is None:
        return Watched(job=job, note=f"no plan.yaml of user {job.user} in {folder}")
    try:
        run = runfile.read_own(folder, owner=job.user_id)
        plan = loads(text, name=str(folder / "plan.yaml"))
    except RightsizerError as error:
        return Watched(job=job, note=str(error))
    if run is None or run.job_id != job.job_id:
        return Watched(job=job, note=f"{folder} is the directory of another job")
    tail = runfile.text_of(folder / PROGRESS, owner=job.user_id, tail_bytes=_TAIL_BYTES) or ""
    done = runfile.text_of(folder / DONE, owner=job.user_id) is not None
    tried = size_history.of_job(
        runfile.text_of(folder / size_history.NAME, owner=job.user_id) or "", job.job_id
    )
    return Watched(
        job=job,
        plan=plan,
        run=run,
        folder=str(folder),
        records=_records(tail),
        done=done,
        given_up=size_history.given_up(tried)[-_MOST_GIVEN_UP:],
    )


def _records(text: str) -> tuple[Record, ...]:
    found = []
    for line in text.splitlines():
        try:
            found.append(Record.parse(line))
        except (ValueError, TypeError):
            continue  # the first line of a tail, or one torn by a crash
    return tuple(found)
