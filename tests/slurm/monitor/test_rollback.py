"""A size at which a job made no step is given up despite interruptions; no other size is."""

import json
from dataclasses import replace

import pytest

from rightsizer_launch.worker.progress import PROGRESS, Record, append
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.monitor import size_records, size_request
from rightsizer_slurm.monitor.decide import history
from rightsizer_slurm.monitor.intent_log import Intent, IntentStage, Kind
from rightsizer_slurm.monitor.intents import failed_by
from rightsizer_slurm.monitor.rollback import (
    JobStart,
    failed,
    resized,
    size_after_failure,
    size_at_start,
    started,
)
from rightsizer_slurm.monitor.size_records import BACK, START, SizeRecord

BACK_ROW = SizeRecord(event=BACK, job_id=7, restart=1, nodes=4, to_nodes=2, time=50.0, why="4 nodes ended")

SQUEUE = '#!/bin/sh\ncat "$(dirname "$0")/state"\n'
SCONTROL = """#!/bin/sh
cd "$(dirname "$0")" && echo "$*" >> given
[ "$1" != requeue ] || echo "COMPLETING 4 2" > state
"""
UPDATE = "update JobId=7 NumNodes=2-2 NumTasks=2 NumCPUs=32"


@pytest.fixture
def start(tmp_path):
    """The second start of a job that has trained on two nodes, now on four; its Slurm is two scripts."""
    for name, text in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "state").write_text("RUNNING 4 1\n")
    first = JobStart(
        run=tmp_path, job_id=7, restart=0, nodes=2, node_gpus=8, cores=16, slurm=Slurm(folder=tmp_path),
        say=lambda _text: None,
    )  # fmt: skip
    first.record(START)
    step(first, world=16)
    return replace(first, restart=1, nodes=4)


def step(start, *, world):
    append(start.run / PROGRESS, Record(event="start", time=1.0, world=world))
    append(start.run / PROGRESS, Record(event="step", time=2.0, world=world, step=9))


def given(start):
    path = start.run / "given"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("world", "code", "back"),
    [
        *((None, 78, 2), (None, 137, 2), (32, 78, None), (24, 1, 2)),
        *((None, 75, None), (None, 143, None), (None, 0, None)),
    ],
    ids=["no-step", "killed", "trained", "too-few", "saved", "told-to-stop", "done"],
)  # fmt: skip
def test_only_a_size_that_made_no_step_is_given_up(start, world, code, back):
    start.record(START)
    if world:
        step(start, world=world)
    assert size_after_failure(start, code=code) == back


def test_a_failure_of_a_size_that_trained_sends_slurm_nothing(start):
    start.record(START)
    step(start, world=32)
    assert not failed(start, code=78)
    assert given(start) == []


def test_a_failure_at_the_size_that_trained_before_is_the_training_s_own(start):
    same = replace(start, nodes=2)
    same.record(START)
    assert size_after_failure(same, code=1) is None


def test_an_earlier_job_in_the_same_directory_is_ignored(start):
    other = replace(start, job_id=8)
    other.record(START)
    assert size_after_failure(other, code=1) is None


def test_it_is_requeued_and_then_sized_and_what_for_is_written_first(start):
    start.record(START)
    assert failed(start, code=78)
    assert given(start) == ["requeue 7", UPDATE]
    (row,) = size_records.given_up(start.rows)
    assert (row.restart, row.nodes, row.to_nodes) == (1, 4, 2)
    assert row.why == "4 nodes failed to start training (exit code 78)"


@pytest.mark.parametrize("state", ["COMPLETING 4 1", "CANCELLED 4 1", "RUNNING 3 1", "PENDING 4 2"])
def test_a_job_that_was_cancelled_requeued_or_lost_a_node_is_left_alone(start, state):
    start.record(START)
    (start.run / "state").write_text(state)
    assert not failed(start, code=137)
    assert given(start) == []
    assert not size_records.given_up(start.rows)


def test_a_start_at_an_abandoned_size_continues_its_rollback(start):
    start.record(START)
    start.record(BACK, to_nodes=2, why="4 nodes ended")  # and then the script was killed
    again = replace(start, restart=2)
    (start.run / "state").write_text("RUNNING 4 2\n")
    (start.run / "scontrol").write_text(SCONTROL.replace("4 2", "4 3"))
    assert started(again)
    assert given(start) == ["requeue 7", UPDATE]
    assert not started(replace(start, restart=3, nodes=2))
    assert [row.event for row in start.rows] == [START, START, BACK, BACK, START]


@pytest.mark.parametrize(
    ("restart", "nodes", "backs", "goes_on"),
    [(2, 4, 1, True), (2, 2, 1, False), (3, 4, 1, False), (3, 4, 2, True), (4, 4, 3, False)],
    ids=["cut-off", "went-back", "asked-for-again", "cut-off-twice", "enough"],
)
def test_an_abandoned_size_may_be_requested_again_later(restart, nodes, backs, goes_on):
    rows = [replace(BACK_ROW, restart=1 + i) for i in range(backs)]
    assert (size_at_start(rows, restart=restart, nodes=nodes) is not None) is goes_on


def test_its_attempts_are_limited(start):
    for restart in (1, 2, 3):
        replace(start, restart=restart).record(BACK, to_nodes=2)
    last = replace(start, restart=4)
    assert not started(last)
    assert size_after_failure(last, code=1) is None


@pytest.mark.parametrize(
    "change",
    [{"nodes": "4"}, {"nodes": -1}, {"nodes": 10**400}, {"why": 4}, {"time": float("nan")}, {"event": "x"}],
    ids=str,
)
def test_an_invalid_line_of_sizes_is_skipped(change):
    good = {"event": BACK, "job_id": 7, "restart": 1, "nodes": 4}
    text = "\n".join(["", "[]", "{", '{"event": "back"}', json.dumps(good | change), json.dumps(good)])
    assert len(size_records.of_job(text, 7)) == 1


GROWN = Intent(
    number=3, job_id=7, kind=Kind.REQUEUE, from_nodes=2, to_nodes=4, node_cores=8, restarts=0,
    stage=IntentStage.DONE, attempts=1, began_s=10.0,
)  # fmt: skip


def test_the_monitor_counts_it_as_failed_and_takes_it_for_a_resize():
    past = history((), 8, (BACK_ROW,))
    assert (past.failed_gpus, past.last_resize_s) == ((32,), 50.0)


@pytest.mark.parametrize(
    ("intents", "numbers"),
    [
        ((GROWN,), (3,)),
        ((replace(GROWN, restarts=1),), ()),
        ((replace(GROWN, to_nodes=3),), ()),
        ((GROWN, replace(GROWN, number=4, stage=IntentStage.FAILED)), ()),
        ((replace(GROWN, number=2), GROWN), (3,)),
    ],
    ids=["led-to-it", "later", "another-size", "known", "the-newest"],
)
def test_the_change_that_led_to_a_size_that_was_given_up_is_not_done(intents, numbers):
    assert tuple(intent.number for intent in failed_by(BACK_ROW, intents)) == numbers


def test_a_job_requeues_itself_at_the_requested_size_and_is_never_held(start):
    size_request.write(start.run, job_id=7, restart=1, nodes=2)
    assert resized(start)
    assert given(start) == ["requeue 7", UPDATE]


def test_a_job_that_was_shrunk_live_requeues_itself_too(start):
    (start.run / "state").write_text("RUNNING 3 1\n")
    size_request.write(start.run, job_id=7, restart=1, nodes=2)
    assert resized(start)
    assert given(start) == ["requeue 7", UPDATE]


@pytest.mark.parametrize("request_of", [(8, 1, 2), (7, 0, 2), (7, 1, 0), (7, 1, "2"), None], ids=str)
def test_a_request_for_another_start_or_no_size_changes_nothing(start, request_of):
    if request_of is not None:
        job_id, restart, nodes = request_of
        size_request.write(start.run, job_id=job_id, restart=restart, nodes=nodes)
    assert not resized(start)
    assert given(start) == []
