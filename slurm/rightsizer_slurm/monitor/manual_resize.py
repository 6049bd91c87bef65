"""`rightsizer slurm resize`: one change of size, asked for by a person. The owner's own rights do."""

import time
from collections.abc import Callable
from pathlib import Path

from rightsizer.errors import InputError
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backends import Backend, away
from rightsizer_slurm.cluster.slurm_cli import SlurmError
from rightsizer_slurm.monitor.inspection import Watched, watched
from rightsizer_slurm.monitor.intent_log import CLOSED, Intent, IntentLog, Kind, Stage
from rightsizer_slurm.monitor.monitor import alone, plan_intent
from rightsizer_slurm.monitor.resize_steps import Resizer

__all__ = ["check", "resize"]

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
    """Change a job's size and wait for it; 0 done, 1 not done. A change under way is gone on with."""
    door = backend or SlurmCommands()
    path = state or Path.home() / ".local/state/rightsizer/resize.db"
    with alone(path):
        log = IntentLog(path)
        try:
            intent = next((one for one in log.open() if one.job_id == job_id), None)
            if intent is None:
                intent = log.plan(_intent(job_id, nodes, requeue=requeue, door=door))
                say(f"job {job_id}: {intent.kind} from {intent.from_nodes} to {intent.to_nodes} nodes")
            else:
                say(f"job {job_id}: goes on with {intent.kind} to {intent.to_nodes} nodes ({intent.stage})")
            after = _to_the_end(Resizer(door, log), intent, door, log, within_s)
        finally:
            log.close()
    if after.stage not in CLOSED:
        say(f"job {job_id}: {after.stage}; not done yet, run the same again to go on")
        return 1
    say(f"job {job_id}: {after.stage}: {after.outcome}")
    return 0 if after.stage is Stage.DONE else 1


def check(one: Watched, nodes: int) -> None:
    """Refuse what cannot be done, before anything is."""
    job, run = one.job, one.run
    if run is None or not one.ours:
        remedy = one.note or "was not submitted by rightsizer sbatch; only such jobs can be resized"
        raise InputError("job", value=job.job_id, remedy=remedy)
    if not job.running:
        raise InputError("job", value=job.job_id, remedy=f"is {job.state}; a running job can be resized")
    if not run.elastic:
        remedy = "its layout is told to its workers; submit the plan again with the size that you want"
        raise InputError("job", value=job.job_id, remedy=remedy)
    if not run.fewest_nodes <= nodes <= run.most_nodes:
        remedy = f"its plan allows {run.fewest_nodes} to {run.most_nodes} (elasticity.minGPUs, maxGPUs)"
        raise InputError("--nodes", value=nodes, remedy=remedy)
    if nodes == job.nodes:
        raise InputError("--nodes", value=nodes, remedy="is what it has")


def _intent(job_id: int, nodes: int, *, requeue: bool, door: Backend) -> Intent:
    job = door.job(job_id)
    if job is None or not job.live:
        raise InputError("job", value=job_id, remedy="is no job that waits or runs; see squeue --me")
    one = watched(job)
    check(one, nodes)
    kind = Kind.REQUEUE if requeue or nodes > job.nodes else Kind.SHRINK
    saved = any(record.event == "checkpoint" for record in one.records)
    if kind is Kind.REQUEUE and not (job.requeue and saved):
        remedy = "cannot be requeued: it has saved nothing yet, or was submitted with --no-requeue"
        raise InputError("job", value=job_id, remedy=remedy)
    return plan_intent(one, nodes=nodes, kind=kind, reason="requested by the user")


def _to_the_end(resizer: Resizer, intent: Intent, door: Backend, log: IntentLog, within_s: float) -> Intent:
    """Step after step; Slurm away is waited out."""
    until = time.monotonic() + within_s
    while intent.stage not in CLOSED and time.monotonic() < until:
        try:
            intent = resizer.advance(intent, door.job(intent.job_id))
        except SlurmError as error:
            if not away(error):
                raise
            intent = next(one for one in log.of_job(intent.job_id) if one.number == intent.number)
        if intent.stage not in CLOSED:
            time.sleep(_POLL_S)
    return intent
