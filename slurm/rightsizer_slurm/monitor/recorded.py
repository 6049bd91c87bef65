"""The records of each job as marks, kept for as long as the resize policy looks back.

A look reads the newest records of a file, some 5,000 steps. At a step a second those span 80 minutes, less
than two automatic checkpoint intervals. The monitor therefore keeps what earlier looks have read.
"""

import math
from collections.abc import Container

from rightsizer_engine.domain.reading import Phase
from rightsizer_engine.resize.policy import window_s
from rightsizer_engine.resize.types import Limits
from rightsizer_engine.values import immutable
from rightsizer_launch.running.limits import Tuning
from rightsizer_launch.running.marks import Mark, marks_of, pruned
from rightsizer_launch.worker.progress import Record


@immutable
class Recorded:
    """A job's marks, which hold every start after `complete_from_s`. `last` is the newest line read."""

    marks: tuple[Mark, ...] = ()
    complete_from_s: float = math.inf
    last: str = ""


class RecordMemory:
    """The records read so far, by job."""

    def __init__(self, tuning: Tuning | None = None) -> None:
        self._tuning = tuning or Tuning()
        self._jobs: dict[int, Recorded] = {}

    def read(self, job_id: int, tail: str, *, checkpoint_interval_s: float | None) -> Recorded:
        """The job's marks with those of `tail`, the newest lines of its records."""
        limits = Limits(
            checkpoint_interval_s=checkpoint_interval_s, least_window_s=self._tuning.least_window_s
        )
        keep_s = window_s(limits) + self._tuning.warm_up_s
        recorded = _continued(self._jobs.get(job_id, Recorded()), tail)
        marks = pruned(recorded.marks, keep_s=keep_s)
        first_step_s = next((m.time_s for m in recorded.marks if m.phase is not Phase.STARTUP), math.inf)
        dropped = bool(marks) and marks[0].time_s > first_step_s  # pruned keeps a bounded number of starts
        from_s = max(recorded.complete_from_s, marks[0].time_s) if dropped else recorded.complete_from_s
        self._jobs[job_id] = Recorded(marks=marks, complete_from_s=from_s, last=recorded.last)
        return self._jobs[job_id]

    def forget(self, *, but: Container[int]) -> None:
        """Drop all jobs `but` these."""
        self._jobs = {job_id: recorded for job_id, recorded in self._jobs.items() if job_id in but}


def _continued(before: Recorded, tail: str) -> Recorded:
    """`before` with the complete lines of `tail` that follow it; the tail alone if it does not continue."""
    known = _end_of(before.last, tail) if before.last else 0
    lines = tail[known : tail.rfind("\n") + 1].split("\n")[:-1]
    records = _records(lines)
    last = lines[-1] if lines else before.last if known else ""
    if known:
        after = before.marks[-1] if before.marks else None
        marks = (*before.marks, *marks_of(records, after=after))
        return Recorded(marks=marks, complete_from_s=before.complete_from_s, last=last)
    whole = bool(records) and records[0].event == "start"
    from_s = -math.inf if whole else records[0].time if records else math.inf
    return Recorded(marks=tuple(marks_of(records)), complete_from_s=from_s, last=last)


def _end_of(line: str, tail: str) -> int:
    """The end of the last occurrence of a line, 0 if there is none. From the end: few lines are new."""
    end = tail.rfind("\n") + 1
    while end > 0:
        start = tail.rfind("\n", 0, end - 1) + 1
        if tail[start : end - 1] == line:
            return end
        end = start
    return 0


def _records(lines: list[str]) -> tuple[Record, ...]:
    records = []
    for line in lines:
        try:
            records.append(Record.parse(line))
        except (ValueError, TypeError):
            continue  # the first line of a tail, or one torn by a crash
    return tuple(records)
