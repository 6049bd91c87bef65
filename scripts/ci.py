#!/usr/bin/env python3
"""Runs suites of scripts/suites.py: ci.py list | run SUITE ... | check | ci | nightly | up NAME | down NAME.

Series run side by side, the suites of a series one after the other. A suite that fails stops no other, and
none is tried again. A suite's output comes when it ends, in one piece; that of a single series while it runs.
At the end: what failed, and exit code 1. Ctrl-C ends what runs. `up` and `down` start and end the cluster of
the tests: kubernetes or slurm.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

sys.path.insert(0, str(Path(__file__).resolve().parent))
import suites as table
from suites import Series, Suite

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "logs"
BY_NAME = {suite.name: suite for suite in table.SUITES}
CI_MINUTES = "CI_MINUTES"
"""After so many minutes CI begins no test marked `slow`: CI ends what runs for 90."""
END_S = 60.0
"""A suite that Ctrl-C ends has so long to end its servers, before it is killed."""
INTERRUPTED = 130
PLACE_VERBS = ("up", "down")
PLACES = {"kubernetes": "cluster", "slurm": "slurm"}  # and the folder of tests/e2e that starts it


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The exit code of a suite, or minus the signal that killed it; and its duration."""

    suite: str
    code: int
    duration_s: float

    def line(self) -> str:
        """Such as "slurm: failed with exit code 1 after 512 s"."""
        how = "passed" if self.code == 0 else f"failed with exit code {self.code}"
        if self.code < 0:
            how = f"was killed by {signal.Signals(-self.code).name}"
        return f"{self.suite}: {how} after {self.duration_s:.0f} s"


class Runner:
    """Runs suites as process groups of their own, so that all of a suite can be ended."""

    def __init__(self, *, env: Mapping[str, str] | None = None, logs: Path = LOGS) -> None:
        self.env = {**os.environ, **(env or {})}
        self.env.pop(
            "MAKEFLAGS", None
        )  # a make that a suite starts has no jobs of the make that started this
        self.logs = logs
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._ended = False

    def run(
        self, series: Sequence[Sequence[Suite]], *, nice: Sequence[int] = (), jobs: int = 0
    ) -> list[Result]:
        """Every suite's result. With one series its output is not kept back."""
        kept = len(series) > 1
        nices = nice or [0] * len(series)
        with ThreadPoolExecutor(jobs or len(series)) as pool:
            try:
                runs = [
                    pool.submit(self._series, one, by, kept) for one, by in zip(series, nices, strict=True)
                ]
                return [result for run in runs for result in run.result()]
            except KeyboardInterrupt:
                self.end()
                raise

    def _series(self, suites: Iterable[Suite], nice: int, kept: bool) -> list[Result]:
        return [self._one(suite, nice, kept) for suite in suites if not self._ended]

    def _one(self, suite: Suite, nice: int, kept: bool) -> Result:
        began_s = time.monotonic()
        if not kept:
            say(f"== {suite.name}")
            code = self._wait(suite, nice, None)
            return Result(suite=suite.name, code=code, duration_s=time.monotonic() - began_s)
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{suite.name}.log"
        with log.open("wb") as output:
            code = self._wait(suite, nice, output)
        result = Result(suite=suite.name, code=code, duration_s=time.monotonic() - began_s)
        with self._lock:
            say(f"== {suite.name}")
            sys.stdout.flush()
            sys.stdout.buffer.write(log.read_bytes())
            say(f"== {result.line()}")
        return result

    def _wait(self, suite: Suite, nice: int, output: BinaryIO | None) -> int:
        with self._lock:
            if self._ended:
                return -signal.SIGINT
            process = subprocess.Popen(
                ["nice", "-n", str(nice), *arguments(suite)],
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                start_new_session=True,
            )
            self._running[process.pid] = process
        code = process.wait()
        with self._lock:
            del self._running[process.pid]
        return code

    def end(self) -> None:
        """Interrupt what runs, so that it removes what it started; kill what still runs after a minute."""
        with self._lock:
            self._ended = True
            running = list(self._running.values())
        until_s = time.monotonic() + END_S
        for process in running:
            _send(process, signal.SIGINT)
        for process in running:
            try:
                process.wait(max(0.0, until_s - time.monotonic()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                until_s = 0.0
        for process in running:
            _send(process, signal.SIGKILL)


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To all of its group: also to what its first process has left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def say(text: str) -> None:
    """A line, before whatever is printed next."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def arguments(suite: Suite) -> list[str]:
    """The suite as one bash; where it must be public, in a checkout that others may read."""
    script = "set -euo pipefail\n" + "\n".join(suite.commands)
    if not suite.public:
        return ["bash", "-c", script]
    return ["tests/e2e/public.sh", "bash", "-c", f"make --no-print-directory -s venv\n{script}"]


def ended(results: Sequence[Result]) -> int:
    """The exit code, after a line for each suite."""
    say("")
    for result in sorted(results, key=lambda one: one.code != 0):
        say(result.line())
    failed = [result.suite for result in results if result.code != 0]
    if failed:
        say(f"failed: {' '.join(failed)}")
    return 1 if failed else 0


def side_by_side(
    series: Sequence[Series], runner: Runner, jobs: int = 0, suites: Mapping[str, Suite] = BY_NAME
) -> list[Result]:
    """The results of series of the table."""
    chosen = [[suites[name] for name in one.suites] for one in series]
    return runner.run(chosen, nice=[one.nice for one in series], jobs=jobs)


def ci() -> int:
    """Quick checks, then all series; the test cluster's programs are built beside both."""
    until_s = time.time() + 60 * float(os.environ.get(CI_MINUTES, "60"))
    env = {"RIGHTSIZER_UNTIL": str(int(until_s))}
    binaries = subprocess.Popen(  # what fails here fails, and is told, in the suite that needs them
        ["nice", "-n", "19", *arguments(BY_NAME["binaries"])],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        quick = side_by_side(table.QUICK, Runner(env=env))
        if any(result.code for result in quick):
            return ended(quick)
        env["RIGHTSIZER_COPIED"] = copied()
        return ended([*quick, *side_by_side(table.CI, Runner(env=env))])
    finally:
        _send(binaries, signal.SIGTERM)
        binaries.wait()


def copied() -> str:
    """The copy of the checkout that public.sh has made, its environment built; empty where none is needed."""
    script = 'make --no-print-directory -s venv >&2; echo "${RIGHTSIZER_COPIED:-}"'
    done = subprocess.run(
        ["tests/e2e/public.sh", "bash", "-c", script], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip().rpartition("\n")[2]


def listed() -> str:
    """The table, one suite a line."""
    where = {name: f"CI {index}" for index, one in enumerate(table.CI, 1) for name in one.suites}
    where |= {name: "CI first" for one in table.QUICK for name in one.suites}
    where |= {name: "nightly" for one in table.NIGHTLY for name in one.suites}
    rows = [("suite", "runs in", "minutes", "needs", "what it is")]
    for suite in table.SUITES:
        needs = ", ".join(suite.needs) or "-"
        rows.append((suite.name, where.get(suite.name, "by hand"), f"{suite.minutes:g}", needs, suite.says))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(word.ljust(width) for word, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    )


def place(verb: str, name: str) -> int:
    """Start or end the tests' own cluster; `up` prints the lines to export."""
    folder = f"tests/e2e/{PLACES[name]}"
    needed = [["make", "--no-print-directory", "-s", "venv"]]
    if verb == "up":
        needed.append([f"{folder}/install.sh"])
    for command in needed:
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return subprocess.run([table.PYTHON, f"{folder}/cluster.py", verb], cwd=ROOT, check=False).returncode


def parse(argv: Sequence[str] | None, suites: Mapping[str, Suite]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("list", "check", "ci", "nightly"):
        verbs.add_parser(verb)
    verbs.add_parser("run").add_argument("suites", nargs="+", choices=suites, metavar="SUITE")
    for verb in PLACE_VERBS:
        verbs.add_parser(verb).add_argument("place", choices=PLACES)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, suites: Mapping[str, Suite] = BY_NAME) -> int:
    """The exit code: 1 if a suite failed."""
    given = parse(argv, suites)
    if given.verb == "list":
        say(listed())
        return 0
    if given.verb in PLACE_VERBS:
        return place(given.verb, given.place)
    if given.verb == "ci":
        return ci()
    if given.verb == "check":
        return ended(side_by_side(table.CHECK, Runner(), jobs=2))
    chosen = table.NIGHTLY if given.verb == "nightly" else [Series(suites=tuple(given.suites))]
    return ended(side_by_side(chosen, Runner(), suites=suites))


def program(argv: Sequence[str] | None = None, suites: Mapping[str, Suite] = BY_NAME) -> int:
    """`main`; SIGTERM and Ctrl-C end it, also if its parent process ignores SIGINT."""

    def interrupted(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    try:
        return main(argv, suites)
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(program())
