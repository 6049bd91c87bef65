"""The monitor keeps a job's records for the policy's window, however short the tail that a look reads."""

import json
import math

import pytest

from rightsizer_launch.running.limits import Tuning
from rightsizer_slurm.monitor.recorded import RecordMemory

INTERVAL_S = 5520.0
NEEDED_S = 2 * INTERVAL_S


def lines(first, last, *, event="step", restart=0):
    """Records of a step a second."""
    record = {"event": event, "step_s": 1.0, "restart": restart}
    return "".join(
        json.dumps(record | {"time": float(n), "step": n, "tokens": 8.0 * n}) + "\n"
        for n in range(first, last)
    )


@pytest.fixture
def read():
    """Reads tails of one job."""
    memory = RecordMemory(Tuning())
    return lambda tail, job=7: memory.read(job, tail, checkpoint_interval_s=INTERVAL_S)


def test_tails_that_overlap_add_up_to_the_window(read):
    for end in range(1000, 16_000, 500):
        recorded = read(lines(end - 1000, end))
    spanned_s = recorded.marks[-1].time_s - recorded.marks[1].time_s
    assert spanned_s >= NEEDED_S
    assert len(recorded.marks) < 600
    assert sum(mark.covers_s for mark in recorded.marks[2:]) == pytest.approx(spanned_s, rel=0.01)


def test_a_tail_that_does_not_continue_starts_anew(read):
    read(lines(0, 100))
    recorded = read(lines(5000, 5100))
    assert (recorded.marks[0].step, recorded.complete_from_s) == (5000, 5000.0)


def test_a_line_that_is_being_written_is_read_once_it_is_complete(read):
    whole = lines(0, 3)
    assert read(whole[:-10]).marks[-1].step == 1
    assert read(whole).marks[-1].step == 2


def test_the_first_start_of_a_file_stays_known_after_its_record_is_dropped(read):
    read(lines(0, 1, event="start") + lines(1, 100))
    for end in range(1000, 16_000, 800):
        recorded = read(lines(end - 1000, end))
    assert recorded.complete_from_s == -math.inf
    assert recorded.marks[0].step == 1


def test_restarts_without_end_do_not_grow_the_memory(read):
    recorded = read("".join(lines(n, n + 1, restart=n) for n in range(9000)))
    assert len(recorded.marks) <= 1000
    assert recorded.complete_from_s == recorded.marks[0].time_s >= 8000.0


def test_jobs_that_have_ended_are_forgotten():
    memory = RecordMemory()
    for job in (7, 8):
        memory.read(job, lines(0, 10), checkpoint_interval_s=None)
    memory.forget(but={8})
    assert memory.read(8, lines(9, 11), checkpoint_interval_s=None).marks[0].step == 0
    assert memory.read(7, lines(9, 11), checkpoint_interval_s=None).marks[0].step == 9
