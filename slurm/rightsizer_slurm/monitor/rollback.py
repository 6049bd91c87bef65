"""`python -m rightsizer_slurm.monitor.rollback start|failed`: a job gives up a size at which it made no step.

A job's script asks when it starts and when its workers have failed; 0 means that the job is requeued, at the
size that trained, and is about to be stopped. It needs no monitor: the job's owner may do all of it.

A running job can only be made smaller, and its next requeue asks for what it had before; a waiting one can
have any size. So it is requeued first, and sized while it still ends, before it can start again. Where that
was cut off, it starts once more at the size that failed, finds the line that was written before, and does it
again.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path

from rightsizer.resize.rollback import rollback_target
from rightsizer.values import immutable
from rightsizer_launch.worker.progress import EXIT_STOPPED, PROGRESS
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backends import unavailable
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.monitor import size_history
from rightsizer_slurm.monitor.size_history import BACK, START, Sized

__all__ = ["Here", "failed", "main", "size_after_failure", "size_at_start", "started"]

_ASKED_TO_STOP = (EXIT_STOPPED, 128 + signal.SIGTERM, 128 + signal.SIGINT)
"""Exit codes of workers that somebody told to stop: no fault of the size."""
_MOST_STARTS = 3
"""Starts in a row at a size that was given up and that Slurm gave all the same: then the job fails there."""
_PATIENCE_S = 600.0
_POLL_S = 1.0


@immutable
class Here:
    """The start that asks: of which job, the how manieth, at what size, where its files are."""

    run: Path
    job_id: int
    restart: int
    nodes: int
    node_gpus: int
    cores: int
    slurm: Slurm = field(default_factory=Slurm)
    say: Callable[[str], None]

    @property
    def rows(self) -> tuple[Sized, ...]:
        """What this job wrote so far."""
        path = self.run / size_history.NAME
        return size_history.of_job(path.read_text(errors="replace"), self.job_id) if path.exists() else ()

    def noted(self, event: str, *, to_nodes: int = 0, why: str = "") -> Sized:
        """Write a line down, on disk before anything is done for it."""
        progress = self.run / PROGRESS
        row = Sized(
            event=event,
            job_id=self.job_id,
            restart=self.restart,
            nodes=self.nodes,
            offset=progress.stat().st_size if progress.exists() else 0,
            to_nodes=to_nodes,
            time=time.time(),
            why=why,
        )
        size_history.append(self.run, row)
        return row


def _say(text: str) -> None:
    """A line of the job's own output."""
    sys.stdout.write(f"rightsizer: {text}\n")
    sys.stdout.flush()


def size_at_start(rows: Sequence[Sized], *, restart: int, nodes: int) -> Sized | None:
    """The line that this start goes on from: the start before gave this very size up, and has it again."""
    before = _in_a_row(rows, restart=restart, nodes=nodes)
    return before[0] if 0 < len(before) < _MOST_STARTS else None


def size_after_failure(here: Here, *, code: int) -> int | None:
    """Nodes to go back to after the workers ended with this code; None: the job has failed."""
    if code in {0, *_ASKED_TO_STOP}:
        return None
    rows = here.rows
    if len(_in_a_row(rows, restart=here.restart, nodes=here.nodes)) >= _MOST_STARTS:
        return None
    good = rollback_target(size_history.trials(rows, here.run / PROGRESS, node_gpus=here.node_gpus))
    return None if good is None else good.gpus // here.node_gpus


def _in_a_row(rows: Sequence[Sized], *, restart: int, nodes: int) -> tuple[Sized, ...]:
    """The starts just before this one that gave its size up, the newest first."""
    found: list[Sized] = []
    for row in reversed(size_history.given_up(rows)):
        if (row.restart, row.nodes) != (restart - 1 - len(found), nodes):
            break
        found.append(row)
    return tuple(found)


def started(here: Here) -> bool:
    """Note a start, or go back where its size was given up and came all the same. Whether it goes back."""
    before = size_at_start(here.rows, restart=here.restart, nodes=here.nodes)
    if before is None:
        here.noted(START)
        return False
    return _back(here, before.to_nodes, why=before.why)


def failed(here: Here, *, code: int) -> bool:
    """Give the size up if that is what the workers' end means. Whether the job goes back."""
    to_nodes = size_after_failure(here, code=code)
    if to_nodes is None:
        return False
    return _back(here, to_nodes, why=f"{here.nodes} nodes ended with exit code {code} before a step")


def _back(here: Here, to_nodes: int, *, why: str) -> bool:
    """Requeue, then size: what is next follows from what Slurm says, and Slurm away is waited out.

    Whether the job is requeued: then it ends here, whatever its size.
    """
    door, noted, requeued, until = SlurmCommands(here.slurm), False, False, time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            state, nodes, restarts = _seen(here)
            requeued = noted and restarts > here.restart
            if requeued:
                door.resize(here.job_id, nodes=to_nodes, tasks=to_nodes, cpus=to_nodes * here.cores)
                return True
            if (state, nodes) != ("RUNNING", here.nodes):
                here.say(f"the job is {state.lower()} on {nodes} nodes; it ends as it is")
                return False
            if not noted:
                here.noted(BACK, to_nodes=to_nodes, why=why)
                here.say(f"{why}; back to {to_nodes}, which trained")
                noted = True
            door.requeue(here.job_id)
        except SlurmError as error:
            if not (requeued or unavailable(error)):
                here.say(f"it cannot go back: {error}")
                return False
            time.sleep(_POLL_S)
    return requeued


def _seen(here: Here) -> tuple[str, int, int]:
    """The job's state, nodes and requeues; a job that ends is COMPLETING."""
    columns = "State:20,NumNodes:20,RestartCnt:20"
    said = here.slurm.run(
        "squeue", "--noheader", f"--jobs={here.job_id}", "--states=all", f"--Format={columns}"
    )
    words = said.split()
    if len(words) != 3 or not (words[1].isdigit() and words[2].isdigit()):
        raise SlurmError("squeue", f"says {said.strip()!r} of job {here.job_id}", code=0)
    return words[0], int(words[1]), int(words[2])


def main(argv: Sequence[str] | None = None) -> int:
    """0: the job goes back, and ends here. 1: it goes on as it is."""
    parser = argparse.ArgumentParser(prog="rightsizer_slurm.monitor.rollback", description=__doc__)
    parser.add_argument("when", choices=("start", "failed"))
    parser.add_argument("--run", type=Path, required=True, help="the run's directory")
    for name in ("job", "restart", "nodes", "node-gpus", "cores"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--code", type=int, default=0, help="the workers' exit code")
    said = parser.parse_args(argv)
    # a requeue ends the script and all that it started: what is begun here is done first
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    here = Here(
        run=said.run,
        job_id=said.job,
        restart=said.restart,
        nodes=said.nodes,
        node_gpus=said.node_gpus,
        cores=said.cores,
        say=_say,
    )
    try:
        back = started(here) if said.when == "start" else failed(here, code=said.code)
    except OSError as error:
        here.say(f"{here.run / size_history.NAME}: {error.strerror}")
        return 1
    return 0 if back else 1


if __name__ == "__main__":
    sys.exit(main())
