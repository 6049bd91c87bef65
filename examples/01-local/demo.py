"""The main job, start to end, on this machine: size, train, lose a worker, go on, resize, report.

    python examples/01-local/demo.py        # or: make demo

It uses `rightsizer run` as anyone would, kills a worker with SIGKILL, and believes nothing: every promise is
checked against what the workers wrote, and the exit code is 1 if one does not hold.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rightsizer_launch.running.calibration import ENV_FILE
from rightsizer_launch.worker.progress import PROGRESS, ProgressReader, Record

PLAN = Path(__file__).with_name("plan.yaml")
PATIENCE_S = 240.0
CLOSE_LOSS = 1e-3  # a repeated step must repeat its loss: same data, same weights, same optimizer states
SMOOTH_LOSS = (
    0.4  # across a change of layout the curve may wobble as it does anyway; from scratch it would jump by 3
)


class BrokenPromiseError(Exception):
    """Something that rightsizer promises did not happen."""


def say(text: str) -> None:
    """A heading."""
    print(f"\n== {text}", flush=True)


def promise(holds: bool, text: str) -> None:
    """Check one promise, aloud."""
    if not holds:
        raise BrokenPromiseError(text)
    print(f"   ok: {text}", flush=True)


class Run:
    """One `rightsizer run`, and what its workers have written so far."""

    def __init__(self, directory: Path, *extra: str) -> None:
        path = directory / PROGRESS
        self.reader = ProgressReader(path, offset=path.stat().st_size if path.exists() else 0)
        self.records: list[Record] = []
        command = [
            str(Path(sys.executable).with_name("rightsizer")),
            "run",
            str(PLAN),
            "--dir",
            str(directory),
            *extra,
        ]
        print("   $ rightsizer", *command[1:], flush=True)
        environment = os.environ | {ENV_FILE: ""}  # a run disturbed on purpose must not calibrate later plans
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        threading.Thread(target=self._relay, daemon=True).start()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing running, whatever went wrong."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)

    def _relay(self) -> None:
        for line in self.process.stdout or ():
            print("   |", line.rstrip(), flush=True)

    def steps(self) -> list[Record]:
        """The steps so far; a repeated one comes twice."""
        return self.all("step")

    def all(self, event: str) -> list[Record]:
        """Records of one kind, oldest first."""
        return [record for record in self.records if record.event == event]

    def last(self, event: str) -> Record:
        """The newest record of one kind."""
        found = self.all(event)
        if not found:
            raise BrokenPromiseError(f"the workers never wrote of a {event}")
        return found[-1]

    def wait(self, what: str, until: Callable[[], bool]) -> None:
        """Read on until something is so; a run that ends or stalls before that broke its promise."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.records += self.reader.read()
            if until():
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BrokenPromiseError(f"waited in vain for {what} (exit code {self.process.poll()})")
            time.sleep(0.1)

    def end(self) -> int:
        """The exit code, once it has ended by itself."""
        code = self.process.wait(PATIENCE_S)
        self.records += self.reader.read()
        return code


def lose_a_worker(run: Run) -> None:
    """SIGKILL one of two workers, and see the training go on from the last checkpoint."""

    def ripe() -> bool:
        saved = run.all("checkpoint")
        return bool(saved) and run.steps()[-1].step >= saved[-1].step + 3

    run.wait("a few steps past a checkpoint", ripe)
    start, saved = run.last("start"), run.last("checkpoint")
    victim, before = start.pids[-1], run.steps()
    say(f"SIGKILL to a worker (pid {victim}) at step {before[-1].step}; saved at step {saved.step}")
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    furthest = before[-1].step
    run.wait(
        "training past the killed step",
        lambda: run.last("start") != start and run.steps()[-1].step > furthest,
    )
    again = run.last("start")
    promise(
        again.world == start.world,
        f"{again.world} workers train again, {time.monotonic() - began:.0f} s later",
    )
    promise(again.step >= saved.step, f"from the checkpoint of step {again.step}, not from the beginning")
    first = {record.step: record.loss for record in before}
    repeated = [record for record in run.steps()[len(before) :] if record.step in first]
    worst = max((abs((r.loss or 0.0) - (first[r.step] or 0.0)) for r in repeated), default=0.0)
    promise(
        worst < CLOSE_LOSS,
        f"{len(repeated)} repeated step(s) had the same loss as before (within {worst:.1e})",
    )


def stop(run: Run, tokens: float) -> Record:
    """Ask for a stop past `tokens`, as Ctrl-C would; the step that was saved."""
    run.wait("most of the tokens", lambda: run.steps()[-1].tokens >= tokens)
    say(f"stopping at step {run.steps()[-1].step}: SIGTERM to rightsizer, as a Ctrl-C")
    run.process.send_signal(signal.SIGTERM)
    promise(run.end() == 130, "exit code 130: stopped, not failed")
    saved = run.last("checkpoint")
    promise(saved.step == run.steps()[-1].step, f"everything up to step {saved.step} was saved first")
    pids = {pid for record in run.records for pid in record.pids}
    promise(not any(alive(pid) for pid in pids), "no worker is left")
    return saved


def alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def mean_loss(records: list[Record]) -> float:
    """Of some steps."""
    return sum(record.loss or 0.0 for record in records) / len(records)


def show(directory: Path, seconds: float) -> None:
    """The report's figures, each from report.json."""
    report = json.loads((directory / "report.json").read_text())
    say("the report")
    for attempt in report["attempts"]:
        measured = attempt["measured"]
        print(
            f"   {attempt['workers']} worker(s): "
            f"predicted {attempt['predicted']['tokensPerSecond']:.0f} tokens/s, "
            f"measured {measured['tokensPerSecond']:.0f} ({attempt['measuredOverPredicted']:.2f} of it)"
        )
    print(f"   restarts: {report['restarts']}; repeated steps: {report['lostSteps']}")
    print("   seconds:", ", ".join(f"{name} {s:.0f}" for name, s in report["secondsByPhase"].items()))
    print(f"   loss: {report['loss']['first']:.2f} -> {report['loss']['last']:.2f}")
    print(f"   on H100s: {report['elsewhere'].get('verdict')}")
    print(f"   all of it: {directory / 'report.json'}; {seconds:.0f} s in all")
    promise(report["state"] == "done", "trained to the last token")
    promise(report["restarts"] >= 1, "the lost worker is in the report")
    promise([a["workers"] for a in report["attempts"]] == [2, 1], "so is the change from 2 workers to 1")
    promise(bool(report["elsewhere"].get("gpus")), "and what H100s would need")


def demo(directory: Path) -> None:
    """The whole story."""
    began = time.monotonic()
    if (directory / "run.json").exists():
        shutil.rmtree(directory)
    say(f"a plan, sized to this machine (measured first) and trained here with two workers: {PLAN.name}")
    with Run(directory, "--measure") as run:
        run.wait("the first step", lambda: bool(run.steps()))
        lose_a_worker(run)
        saved = stop(run, tokens=90e3)
        before = run.steps()
    say("the same plan with one worker: another layout, from the same checkpoint")
    with Run(directory, "--workers", "1") as run:
        promise(run.end() == 0, "exit code 0: complete")
        start, after = run.last("start"), run.steps()
    promise((start.step, start.world) == (saved.step, 1), f"one worker went on at step {start.step}")
    old, new = mean_loss(before[-5:]), mean_loss(after[:5])
    promise(abs(new - old) < SMOOTH_LOSS, f"the loss goes on where it was: {old:.2f} before, {new:.2f} after")
    show(directory, time.monotonic() - began)


def main() -> int:
    """Run the demo; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs/demo"), help="where the run is kept")
    try:
        demo(parser.parse_args().dir)
    except BrokenPromiseError as broken:
        print(f"\n!! not so: {broken}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
