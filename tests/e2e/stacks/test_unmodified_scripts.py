"""Scripts of real training stacks, as they are: measured, killed, resumed, resized, on CPU with gloo.

Each stack runs in an environment of its own (scripts/stack_env.sh). `make suite SUITE=stacks` runs all.
"""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from stackrun import Run

from rightsizer_launch.worker.progress import ProgressReader, Record

pytestmark = [pytest.mark.stacks]

ROOT = Path(__file__).parents[3]
TOKENS = {"transformers": "400k", "trl": "600k", "lightning": "600k", "accelerate": "390k"}
"""More than the examples' where those end in three seconds: before a checkpoint, a kill and a stop."""
STACKS = sorted(path.parent.name for path in ROOT.glob("examples/stacks/*/plan.yaml"))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def mean_loss(records: list[Record]) -> float:
    return sum(record.loss or 0.0 for record in records) / len(records)


@pytest.fixture(scope="module", params=STACKS)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, environment_of) -> Path:
    """Two workers, one killed past a checkpoint, a stop whose checkpoint breaks, the rest with one worker."""
    environment = environment_of(request.param)
    folder = tmp_path_factory.mktemp(request.param) / "job"
    shutil.copytree(ROOT / "examples/stacks" / request.param, folder)
    longer(folder / "plan.yaml", TOKENS.get(request.param))
    with Run(environment, folder) as run:
        lose_a_worker_past_a_checkpoint(run)
        furthest = max(record.step for record in run.records("step"))
        run.wait("second start", lambda: len(run.records("start")) > 1)
        run.wait("step past the kill", lambda: run.records("step")[-1].step > furthest)
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 130
        break_checkpoint(Path(run.records("checkpoint")[-1].path))
    with Run(environment, folder, "--workers", "1") as run:
        assert run.end() == 0, (folder / "log").read_text()[-3000:]
    return folder / "D"


def longer(plan: Path, tokens: str | None) -> None:
    """Let the training take long enough to be killed and stopped, with a checkpoint each second."""
    text = re.sub(r"interval: .*", "interval: 1s", plan.read_text())
    plan.write_text(re.sub(r"tokens: .*", f"tokens: {tokens}", text) if tokens else text)


def break_checkpoint(path: Path) -> None:
    """Leave a checkpoint as a crash in the middle of its save would."""
    if (path / ".metadata").exists():
        (path / ".metadata").unlink()
        return
    if (path / "trainer_state.json").is_file():
        (path / "trainer_state.json").write_text('{"global_step"')
        return
    files = [part for part in path.rglob("*") if part.is_file()] if path.is_dir() else [path]
    largest = max(files, key=lambda part: part.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def lose_a_worker_past_a_checkpoint(run: Run) -> None:
    """Kill the last worker in a step that follows a checkpoint, while no checkpoint is being written.

    With that worker stopped, the first one ends the save that it is in and waits in the next all-reduce.
    """
    while True:
        run.wait("step past a checkpoint", lambda: _past_a_checkpoint(run) >= 1)
        victim = run.records("start")[-1].pids[-1]
        os.kill(victim, signal.SIGSTOP)
        run.wait_until_no_record_is_written_for(2.0)
        if _past_a_checkpoint(run) >= 1:
            break
        os.kill(victim, signal.SIGCONT)
    os.kill(victim, signal.SIGKILL)


def _past_a_checkpoint(run: Run) -> int:
    saved, steps = run.records("checkpoint"), run.records("step")
    return steps[-1].step - saved[-1].step if saved and steps else 0


def records(folder: Path, event: str) -> list[Record]:
    return [record for record in ProgressReader(folder / "progress.jsonl").read() if record.event == event]


def report(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


def test_the_report_holds_measured_beside_predicted(story):
    document = report(story)
    assert document["state"] == "done"
    assert [attempt["workers"] for attempt in document["attempts"]] == [2, 1]
    for attempt in document["attempts"]:
        assert attempt["measured"]["tokensPerSecond"] > 0
        assert attempt["predicted"]["tokensPerSecond"] > 0


def test_a_killed_worker_costs_one_restart_and_the_steps_since_the_checkpoint(story):
    first, again, _ = records(story, "start")
    before = [r.step for r in records(story, "checkpoint") if r.time < again.time]
    assert (first.step, again.step) == (0, before[-1])
    assert report(story)["restarts"] == 1
    assert report(story)["lostSteps"] > 0


def test_a_stop_saves_first(story):
    last = max(r.step for r in records(story, "step") if r.attempt == 1)
    assert [r.step for r in records(story, "checkpoint") if r.attempt == 1][-1] == last


def test_one_worker_resumes_from_the_newest_complete_checkpoint(story):
    start = records(story, "start")[-1]
    saved = [r.step for r in records(story, "checkpoint") if r.attempt == 1]
    assert (start.world, start.attempt) == (1, 2)
    assert start.step == max(step for step in saved if step < saved[-1])


@pytest.mark.parametrize("attempt", [1, 2], ids=["two workers", "one worker"])
def test_repeated_steps_train_on_the_same_data(story, attempt):
    seen: dict[int, float] = {}
    repeated = []
    for record in records(story, "step"):
        if record.step in seen and record.attempt == attempt:
            repeated.append(abs((record.loss or 0.0) - seen[record.step]))
        seen[record.step] = record.loss or 0.0
    assert repeated
    assert max(repeated) < 0.001


def test_the_loss_continues_with_one_worker(story):
    steps = records(story, "step")
    before, after = [r for r in steps if r.attempt == 1], [r for r in steps if r.attempt == 2]
    resumed = [record for record in before if record.step < after[0].step]
    assert mean_loss(after[:5]) < mean_loss(resumed[-5:]) + 0.2
    assert mean_loss(after[-5:]) < mean_loss(before[:5])


def test_the_global_batch_is_the_same_with_one_worker(story):
    steps = records(story, "step")
    assert {round(r.tokens / r.step, 6) for r in steps} == {steps[0].tokens / steps[0].step}
    assert steps[-1].tokens >= report(story)["targetTokens"]


def test_no_process_is_left(story):
    pids = {pid for record in records(story, "start") for pid in record.pids}
    assert not [pid for pid in pids if is_alive(pid)]
