"""`python -m rightsizer_slurm.monitor.rollback start|failed|resize`: the job requeues itself at another size.

The batch script runs it at its start, when its workers have failed (rolls back from a size that never
trained), and when they have saved for `rightsizer slurm resize`. Exit code 0 means that the job is requeued
at the other size, and is about to be stopped. It needs no monitor, only the owner's rights; it holds nothing.

Slurm can only shrink a running job, but can give a pending job any size. So the job is requeued first, then
resized while it completes, before it can start again. If a crash comes between the two, the job starts once
more at the failed size, reads its line in sizes.jsonl, and repeats the rollback.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path

from rightsizer_engine.resize.rollback import rollback_target
from rightsizer_engine.values import immutable
from rightsizer_launch.worker.progress import EXIT_STOPPED, PROGRESS
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backends import unavailable
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.monitor import size_records, size_request
from rightsizer_slurm.monitor.size_records import BACK, START, SizeRecord

_STOP_EXIT_CODES = (EXIT_STOPPED, 128 + signal.SIGTERM, 128 + signal.SIGINT)
"""Exit codes of workers that were stopped by a signal: the size has not failed."""
_MOST_STARTS = 3
"""Consecutive starts at a size that was rolled back already; after these the job fails."""
_TIMEOUT_S = 600.0
_POLL_S = 1.0


@immutable
class JobStart:
    """The present start of the job: its restart count, size and run directory."""

    run: Path
    job_id: int
    restart: int
    nodes: int
    node_gpus: int
    cores: int
    slurm: Slurm = field(default_factory=Slurm)
    say: Callable[[str], None]

    @property
    def rows(self) -> tuple[SizeRecord, ...]:
        """The lines of this job."""
        path = self.run / size_records.NAME
        return size_records.of_job(path.read_text(errors="replace"), self.job_id) if path.exists() else ()

    def record(self, event: str, *, to_nodes: int = 0, why: str = "") -> SizeRecord:
        """Append a line to sizes.jsonl. Call it before the action that it announces."""
        progress = self.run / PROGRESS
        record = SizeRecord(
            event=event,
            job_id=self.job_id,
            restart=self.restart,
            nodes=self.nodes,
            offset=progress.stat().st_size if progress.exists() else 0,
            to_nodes=to_nodes,
            time=time.time(),
            why=why,
        )
        size_records.append(self.run, record)
        return record


def _say(text: str) -> None:
    """Print a line to the job's output."""
    sys.stdout.write(f"rightsizer: {text}\n")
    sys.stdout.flush()


def size_at_start(rows: Sequence[SizeRecord], *, restart: int, nodes: int) -> SizeRecord | None:
    """The rollback that this start repeats: the previous start rolled back from the same size."""
    before = _consecutive_rollbacks(rows, restart=restart, nodes=nodes)
    return before[0] if 0 < len(before) < _MOST_STARTS else None


def size_after_failure(start: JobStart, *, code: int) -> int | None:
    """Nodes to roll back to after this exit code; None if the job has failed."""
    if code in {0, *_STOP_EXIT_CODES}:
        return None
    rows = start.rows
    if len(_consecutive_rollbacks(rows, restart=start.restart, nodes=start.nodes)) >= _MOST_STARTS:
        return None
    good = rollback_target(size_records.trials(rows, start.run / PROGRESS, node_gpus=start.node_gpus))
    return None if good is None else good.gpus // start.node_gpus


def _consecutive_rollbacks(rows: Sequence[SizeRecord], *, restart: int, nodes: int) -> tuple[SizeRecord, ...]:
    """The rollbacks from this size by the starts just before this one, the newest first."""
    records: list[SizeRecord] = []
    for record in reversed(size_records.given_up(rows)):
        if (record.restart, record.nodes) != (restart - 1 - len(records), nodes):
            break
        records.append(record)
    return tuple(records)


def started(start: JobStart) -> bool:
    """Record a start, or repeat an interrupted rollback. Returns whether the job rolls back."""
    before = size_at_start(start.rows, restart=start.restart, nodes=start.nodes)
    if before is None:
        start.record(START)
        return False
    return _roll_back(start, before.to_nodes, why=before.why)


def failed(start: JobStart, *, code: int) -> bool:
    """Roll back if this size never trained. Returns whether the job rolls back."""
    to_nodes = size_after_failure(start, code=code)
    if to_nodes is None:
        return False
    return _roll_back(start, to_nodes, why=f"{start.nodes} nodes failed to start training (exit code {code})")


def resized(start: JobStart) -> bool:
    """Requeue at the size that the job's owner requested. Returns whether the job is requeued."""
    to_nodes = size_request.read(start.run, job_id=start.job_id, restart=start.restart)
    if to_nodes is None:
        return False
    return _requeue_at(start, to_nodes, announce=lambda: start.say(f"saved; requeued at {to_nodes} nodes"))


def _roll_back(start: JobStart, to_nodes: int, *, why: str) -> bool:
    return _requeue_at(
        start,
        to_nodes,
        only_nodes=start.nodes,
        announce=lambda: start.say(start.record(BACK, to_nodes=to_nodes, why=why).outcome),
    )


def _requeue_at(
    start: JobStart, to_nodes: int, *, announce: Callable[[], None], only_nodes: int | None = None
) -> bool:
    """Requeue, then resize, each step by the job's present state; wait while Slurm is unavailable.

    `announce` is called before the requeue. A job on other than `only_nodes` was shrunk: it stays. Returns
    whether the job is requeued: then this script ends, whatever its size.
    """
    backend, announced, requeued = SlurmCommands(start.slurm), False, False
    until = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < until:
        try:
            state, nodes, restarts = _job_state(start)
            requeued = announced and restarts > start.restart
            if requeued:
                backend.resize(start.job_id, nodes=to_nodes, tasks=to_nodes, cpus=to_nodes * start.cores)
                return True
            if state != "RUNNING" or only_nodes not in {None, nodes}:
                start.say(f"not requeued: the job is {state.lower()} on {nodes} nodes")
                return False
            if not announced:
                announce()
                announced = True
            backend.requeue(start.job_id)
        except SlurmError as error:
            if not (requeued or unavailable(error)):
                start.say(f"cannot be requeued: {error}")
                return False
            time.sleep(_POLL_S)
    return requeued


def _job_state(start: JobStart) -> tuple[str, int, int]:
    """The job's state (COMPLETING while it ends), nodes and restarts."""
    columns = "State:20,NumNodes:20,RestartCnt:20"
    output = start.slurm.run(
        "squeue", "--noheader", f"--jobs={start.job_id}", "--states=all", f"--Format={columns}"
    )
    values = output.split()
    if len(values) != 3 or not (values[1].isdigit() and values[2].isdigit()):
        raise SlurmError("squeue", f"unexpected output {output.strip()!r} for job {start.job_id}", code=0)
    return values[0], int(values[1]), int(values[2])


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: the job rolls back and this script ends. 1: it continues."""
    parser = argparse.ArgumentParser(prog="rightsizer_slurm.monitor.rollback", description=__doc__)
    parser.add_argument("when", choices=("start", "failed", "resize"))
    parser.add_argument("--run", type=Path, required=True, help="the run's directory")
    for name in ("job", "restart", "nodes", "node-gpus", "cores"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--code", type=int, default=0, help="the workers' exit code")
    arguments = parser.parse_args(argv)
    # a requeue ends the script and its children with SIGTERM: finish the rollback first
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start = JobStart(
        run=arguments.run,
        job_id=arguments.job,
        restart=arguments.restart,
        nodes=arguments.nodes,
        node_gpus=arguments.node_gpus,
        cores=arguments.cores,
        say=_say,
    )
    try:
        if arguments.when == "resize":
            return 0 if resized(start) else 1
        back = started(start) if arguments.when == "start" else failed(start, code=arguments.code)
    except OSError as error:
        start.say(f"{start.run / size_records.NAME}: {error.strerror}")
        return 1
    return 0 if back else 1


if __name__ == "__main__":
    sys.exit(main())
