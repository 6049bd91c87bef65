"""Cost of the submit plugin: `python -m bench.slurm`, as root, on two real Slurms side by side.

One Slurm has no plugin, the other has the plugin with the packaged time-outs. Each round submits once
of every kind, so that all kinds see the same load. Written: the medians of sbatch's time, and of slurmctld's
own time for a submit (sdiag), which includes the plugin. The same, with quantiles, while 72 jobs of another
user wait for sizes that are not cached, and without them, in turn.
"""

import argparse
import itertools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.results import RESULTS, write_json
from bench.sizing import quantile

from rightsizer_slurm.submit.protocol import request_text

ROOT = Path(__file__).resolve().parents[1]
CONTROL = ROOT / "tests" / "e2e" / "slurm" / "cluster.py"
OURS = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
OTHER = "a comment of somebody else"
KINDS = {
    "dense, 8B": "rightsizer: model=llama-3.1-8b tokens=10B deadline={}h",
    "mixture of experts, 8x7B": "rightsizer: model=mixtral-8x7b tokens=2B deadline={}h",
    "LoRA, 8B": "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline={}h",
}
GOALS_MS = {"other jobs: plugin": 0.1, "sized from the cache": 5.0, "daemon hung, first submit": 350.0}
COLD = "rightsizer: model=mixtral-8x7b tokens=2B deadline=72h sequence-length={}"
FLOOD, FLOOD_USER, TURNS = 72, "nobody", 3
HELD = "ticket="  # in the comment of a job that waits for its size
MORE_GOAL_MS = 1.0  # of slurmctld's time, beside the flood
Cases = Mapping[str, tuple["Lab", str]]
Samples = dict[str, dict[str, list[float]]]  # by case: milliseconds of the client and of slurmctld
NOTED_S = 6.0  # the daemon writes down what was asked with each look at the cluster, here every second
RESTARTS = 5


class Lab:
    """One Slurm of this machine."""

    def __init__(self, name: str, *, plugin: bool) -> None:
        chosen = {"RIGHTSIZER_SLURM": name, "RIGHTSIZER_SLURM_PLUGIN": "on" if plugin else "off"}
        self._environment = os.environ | chosen
        exports = dict(re.findall(r"export (\w+)=(.*)", self.control("up")))
        self.slurm = {"PATH": os.environ["PATH"], "HOME": "/", **exports}

    def control(self, *words: str) -> str:
        """cluster.py with these words."""
        argv = [sys.executable, CONTROL, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, env=self._environment).stdout

    @property
    def plan_socket(self) -> Path:
        """The daemon's socket."""
        return Path(self.slurm["RIGHTSIZER_SLURM_CONF"]).parent.parent / "run" / "rightsizer" / "plan.sock"

    def start_daemon(self) -> None:
        """Start the daemon; wait until it listens and has finished its first round."""
        self.control("start", "rightsizer")
        while not self._listens():
            time.sleep(0.2)
        time.sleep(NOTED_S)

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.plan_socket)) == 0

    def submit_s(self, comment: str, *, option: str = "--hold", user: str = "root") -> float:
        """Seconds that one sbatch takes."""
        argv = ("sbatch", option, "--output=/dev/null", "--wrap=true", f"--comment={comment}")
        began_s = time.perf_counter()
        subprocess.run(argv, check=True, capture_output=True, env=self.slurm, cwd="/", user=user)
        return time.perf_counter() - began_s

    def ask(self, *argv: str) -> str:
        """One of Slurm's commands."""
        return subprocess.run(argv, check=True, capture_output=True, text=True, env=self.slurm).stdout

    def server_ms(self) -> float:
        """Milliseconds that slurmctld has spent on submits so far."""
        found = re.search(r"REQUEST_SUBMIT_BATCH_JOB.*total_time:(\d+)", self.ask("sdiag"))
        return int(found[1]) / 1e3 if found else 0.0

    def held(self) -> int:
        """The number of jobs that wait for their size."""
        return self.ask("squeue", "--noheader", "--format=%k").count(HELD)

    def all_sized(self) -> None:
        """Wait until no job waits for its size."""
        while self.held():
            time.sleep(0.5)

    def cancel(self) -> None:
        """End all jobs."""
        for user in ("root", FLOOD_USER):
            self.ask("scancel", f"--user={user}")


def rounds(cases: Cases, count: int, *, goes_on: Callable[[], object] = lambda: True) -> Samples:
    """Submit each kind once a round: sbatch's seconds, and slurmctld's own milliseconds."""
    found: Samples = {name: {"client": [], "slurmctld": []} for name in cases}
    for _ in itertools.takewhile(lambda _: goes_on(), range(count)):
        for name, (lab, comment) in cases.items():
            before_ms = lab.server_ms()
            found[name]["client"].append(1e3 * lab.submit_s(comment))
            found[name]["slurmctld"].append(lab.server_ms() - before_ms)
    return found


def medians(found: Samples) -> dict[str, dict[str, float]]:
    """The median and the least of each."""
    rows: dict[str, dict[str, float]] = {}
    for name, row in found.items():
        rows[name] = {}
        for part, values in row.items():
            rows[name][f"{part}_median_ms"] = round(statistics.median(values), 3)
            rows[name][f"{part}_least_ms"] = round(min(values), 3)
    return rows


def beside_flood(cases: Cases, lab: Lab, count: int) -> dict[str, dict[str, float]]:
    """Submits with and without a flood of another user's jobs that wait for sizes, in turn."""
    without, beside = ({name: {"slurmctld": [], "client": []} for name in cases} for _ in range(2))
    lengths = itertools.count(256, 8)
    flood_ms: list[float] = []
    for _ in range(TURNS):
        for found, jobs, goes_on in ((without, 0, lambda: True), (beside, FLOOD, lab.held)):
            lab.submit_s(OURS)  # in the cache for a minute
            lab.all_sized()
            for length in itertools.islice(lengths, jobs):
                comment = COLD.format(length)
                flood_ms.append(1e3 * lab.submit_s(comment, option="--begin=now+1day", user=FLOOD_USER))
            for name, row in rounds(cases, count // TURNS, goes_on=goes_on).items():
                for part, values in row.items():
                    found[name][part] += values
            lab.all_sized()
            for each, _ in cases.values():
                each.cancel()
    rows = {name: dict(_compared(without[name], beside[name])) for name in cases}
    rows["the flood's own submits, held"] = {
        f"client_p{q}_ms": round(quantile(flood_ms, q / 100), 3) for q in (50, 99)
    }
    return rows


def _compared(
    without: Mapping[str, Sequence[float]], beside: Mapping[str, Sequence[float]]
) -> Iterator[tuple[str, float]]:
    for part, q in itertools.product(("slurmctld", "client"), (50, 90, 99)):
        before, after = (quantile(found[part], q / 100) for found in (without, beside))
        yield f"{part}_p{q}_ms", round(before, 3)
        yield f"{part}_p{q}_beside_ms", round(after, 3)
        yield f"{part}_p{q}_ratio", round(after / before, 2)
    more_ms = quantile(beside["slurmctld"], 0.5) - quantile(without["slurmctld"], 0.5)
    yield "slurmctld_more_ms", round(more_ms, 3)
    yield "goal_ms", MORE_GOAL_MS
    yield "samples", len(beside["client"])


def hung(lab: Lab) -> dict[str, dict[str, float]]:
    """Seconds of the first and of later submits while the daemon is frozen."""
    lab.control("stop", "rightsizer")
    try:
        times_ms = [1e3 * lab.submit_s(OURS) for _ in range(6)]
    finally:
        lab.control("continue", "rightsizer")
        lab.cancel()
    return {
        "daemon hung, first submit": {"client_median_ms": round(times_ms[0], 3)},
        "daemon hung, later submits": {"client_median_ms": round(statistics.median(times_ms[1:]), 3)},
    }


def down(lab: Lab, bare: Lab, count: int) -> dict[str, dict[str, float]]:
    """Seconds of a submit without a daemon."""
    lab.control("kill", "rightsizer")
    found = medians(rounds({"no plugin ": (bare, OURS), "daemon down": (lab, OURS)}, count))
    for each in (lab, bare):
        each.cancel()
    lab.start_daemon()
    return {"daemon down": found["daemon down"]}


def answers(lab: Lab, count: int) -> dict[str, dict[str, float]]:
    """The daemon's own seconds: first job of a kind, another deadline, the same again; after a restart."""
    path = lab.plan_socket
    found: dict[str, dict[str, list[float]]] = {name: {} for name in KINDS}
    kinds = {name: f"{comment} sequence-length={{}}" for name, comment in KINDS.items()}
    for name, kind in kinds.items():
        for index in range(count):
            for asked, hours in (("first", 72), ("another deadline", 96), ("again", 96)):
                comment = kind.format(hours, 4096 - 128 * index)
                found[name].setdefault(asked, []).append(1e3 * _asked_s(path, comment))
    for _ in range(RESTARTS):
        time.sleep(NOTED_S)
        lab.control("kill", "rightsizer")
        lab.start_daemon()
        for name, kind in kinds.items():
            comment = kind.format(120, 4096 - 128 * (count - 1))
            found[name].setdefault("another deadline after a restart", []).append(
                1e3 * _asked_s(path, comment)
            )
    return {
        name: {f"{asked}_median_ms": round(statistics.median(ms), 3) for asked, ms in each.items()}
        for name, each in found.items()
    }


def _asked_s(path: Path, comment: str) -> float:
    began_s = time.perf_counter()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(request_text({"kind": "cli", "comment": comment}))
        with connection.makefile("rb") as answer:
            if b" OK\n" not in answer.readline():
                raise SystemExit(f"no size for {comment}")
            answer.read()
    return time.perf_counter() - began_s


def extra_ms(found: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Extra milliseconds of each kind compared with no plugin, and the goal."""
    bare = found["no plugin"]
    rows = {}
    for name, goal_ms in GOALS_MS.items():
        row = found[name]
        kind = "slurmctld_median_ms" if "slurmctld_median_ms" in row else "client_median_ms"
        rows[name] = {"extra_ms": round(row[kind] - bare[kind], 3), "goal_ms": goal_ms}
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "slurm.json")
    given = parser.parse_args(arguments)
    bare, lab = Lab("benchbare", plugin=False), Lab("benchplugin", plugin=True)
    try:
        lab.submit_s(OURS)
        lab.all_sized()  # from here on it is in the cache for a minute
        cases = {
            "no plugin": (bare, OTHER),
            "other jobs: plugin": (lab, OTHER),
            "sized from the cache": (lab, OURS),
        }
        found = medians(rounds(cases, given.rounds))
        flood = beside_flood(cases, lab, given.rounds)
        sizes = answers(lab, max(5, given.rounds // 5))
        found |= down(lab, bare, max(10, given.rounds // 4))
        found |= hung(lab)
    finally:
        bare.control("down")
        lab.control("down")
    document = {
        "submits": found,
        "over no plugin": extra_ms(found),
        f"beside {FLOOD} cold requests": flood,
        "the daemon's own time": sizes,
        "rounds": given.rounds,
        "load_average": round(os.getloadavg()[0], 2),
        "cpus": os.cpu_count(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }
    write_json(given.out, document)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
