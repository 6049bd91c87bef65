"""`rightsizer slurm resize`: one resize, requested by a user. The rights of the job's owner suffice."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from rightsizer_engine.errors import InputError
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backends import Backend, unavailable
from rightsizer_slurm.cluster.slurm_cli import SlurmError
from rightsizer_slurm.monitor import size_request
from rightsizer_slurm.monitor.inspection import InspectedJob, monitored_job
from rightsizer_slurm.monitor.intent_log import CLOSED, Intent, IntentLog, IntentStage, Kind
from rightsizer_slurm.monitor.intents import plan_intent
from rightsizer_slurm.monitor.resize_steps import JobResizer
from rightsizer_slurm.state_file import alone

_POLL_S = 1.0


def resize(
    job_id: int,
    nodes: int,
    *,
    requeue: bool,
    state: Path | None,
    within_s: float,
    say: Callable[[str], None],
    backend: Backend | None = None,
) -> int:
    """Resize a job and wait; 0 if done, else 1. Continues a resize that is under way."""
    backend = backend or SlurmCommands()
    path = state or Path.home() / ".local/state/rightsizer/resize.db"
    with alone(path):
        log = IntentLog(path)
        try:
            intent = next((intent for intent in log.open() if intent.job_id == job_id), None)
            if intent is None:
                intent = log.plan(_intent(job_id, nodes, requeue=requeue, backend=backend))
                say(f"job {job_id}: {intent.kind} from {intent.from_nodes} to {intent.to_nodes} nodes")
            else:
                say(f"job {job_id}: continues {intent.kind} to {intent.to_nodes} nodes ({intent.stage})")
            _request(intent, backend)
            after = _advance(JobResizer(backend, log), intent, backend, log, within_s)
        finally:
            log.close()
    if after.stage not in CLOSED:
        say(f"job {job_id}: {after.stage}; not done yet; run the same command again to continue")
        return 1
    say(f"job {job_id}: {after.stage}: {after.outcome}")
    return 0 if after.stage is IntentStage.DONE else 1


def check(one: InspectedJob, nodes: int) -> None:
    """Refuse an impossible resize before anything is changed."""
    job, run = one.job, one.run
    if run is None or not one.ours:
        remedy = one.note or "was not submitted by rightsizer sbatch; only such jobs can be resized"
        raise InputError("job", value=job.job_id, remedy=remedy)
    if not job.running:
        raise InputError("job", value=job.job_id, remedy=f"is {job.state}; only a running job can be resized")
    if not run.elastic:
        remedy = "its layout is fixed in its command line; submit the plan again with the size that you want"
        raise InputError("job", value=job.job_id, remedy=remedy)
    if not run.fewest_nodes <= nodes <= run.most_nodes:
        remedy = f"its plan allows {run.fewest_nodes} to {run.most_nodes} (elasticity.minGPUs, maxGPUs)"
        raise InputError("--nodes", value=nodes, remedy=remedy)
    if nodes == job.nodes:
        raise InputError("--nodes", value=nodes, remedy="is its present size")


def _intent(job_id: int, nodes: int, *, requeue: bool, backend: Backend) -> Intent:
    job = backend.job(job_id)
    if job is None or not job.live:
        raise InputError("job", value=job_id, remedy="is not a pending or running job; see squeue --me")
    one = monitored_job(job)
    check(one, nodes)
    kind = Kind.REQUEUE if requeue or nodes > job.nodes else Kind.SHRINK
    saved = any(mark.saved_at_s is not None for mark in one.marks)
    if kind is Kind.REQUEUE and not (job.requeue and saved):
        remedy = "cannot be requeued: it has no checkpoint yet, or was submitted with --no-requeue"
        raise InputError("job", value=job_id, remedy=remedy)
    return plan_intent(one, nodes=nodes, kind=kind, reason="requested by the user")


def _request(intent: Intent, backend: Backend) -> None:
    """Let the job requeue itself at the new size. It is held for those who cannot write there."""
    job = backend.job(intent.job_id)
    if intent.kind is Kind.REQUEUE and job is not None and job.running:
        with contextlib.suppress(OSError):
            size_request.write(
                Path(monitored_job(job).folder),
                job_id=intent.job_id,
                restart=intent.restarts,
                nodes=intent.to_nodes,
            )


def _advance(
    resizer: JobResizer, intent: Intent, backend: Backend, log: IntentLog, within_s: float
) -> Intent:
    """Advance the intent until it is closed; wait while Slurm is unavailable."""
    until = time.monotonic() + within_s
    while intent.stage not in CLOSED and time.monotonic() < until:
        try:
            intent = resizer.advance(intent, backend.job(intent.job_id))
        except SlurmError as error:
            if not unavailable(error):
                raise
            intent = next(entry for entry in log.of_job(intent.job_id) if entry.number == intent.number)
        if intent.stage not in CLOSED:
            time.sleep(_POLL_S)
    return intent
