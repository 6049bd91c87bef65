"""What the submit plugin costs: `python -m bench.slurm`, as root, on two real Slurms side by side.

One Slurm has no plugin, the other has the plugin with a site's own settings (0.3 s patience). Each round
submits once of every kind, so that all kinds see the same load. Written: the medians of what sbatch took, and
of what slurmctld itself spent on a submit (sdiag), which the plugin is a part of. On a machine that is busy
with other things run it by `chrt --rr 5`; its daemons inherit that.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.results import RESULTS, write_json

ROOT = Path(__file__).resolve().parents[1]
CONTROL = ROOT / "tests" / "e2e" / "slurm" / "cluster.py"
OURS = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
OTHER = "a comment of somebody else"
KINDS = {
    "dense, 8B": "rightsizer: model=llama-3.1-8b tokens=10B deadline={}h",
    "mixture of experts, 8x7B": "rightsizer: model=mixtral-8x7b tokens=2B deadline={}h",
    "LoRA, 8B": "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline={}h",
}
GOALS_MS = {"other jobs: plugin": 0.1, "sized from the memo": 5.0, "daemon hung, first submit": 350.0}
SEEN_S = 1.2  # the plugin reads its settings at most once a second
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

    def submit_s(self, comment: str) -> float:
        """Seconds that one sbatch takes."""
        argv = ("sbatch", "--hold", "--output=/dev/null", "--wrap=true", f"--comment={comment}")
        began_s = time.perf_counter()
        subprocess.run(argv, check=True, capture_output=True, env=self.slurm, cwd="/")
        return time.perf_counter() - began_s

    def ask(self, *argv: str) -> str:
        """One of Slurm's commands."""
        return subprocess.run(argv, check=True, capture_output=True, text=True, env=self.slurm).stdout

    def server_ms(self) -> float:
        """Milliseconds that slurmctld has spent on submits so far."""
        found = re.search(r"REQUEST_SUBMIT_BATCH_JOB.*total_time:(\d+)", self.ask("sdiag"))
        return int(found[1]) / 1e3 if found else 0.0

    def cancel(self) -> None:
        """End all its jobs."""
        self.ask("scancel", "--user=root")


def rounds(cases: Mapping[str, tuple[Lab, str]], count: int) -> dict[str, dict[str, float]]:
    """Every kind once a round: what sbatch took, and how much slurmctld's own account grew."""
    client: dict[str, list[float]] = {name: [] for name in cases}
    server: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(count):
        for name, (lab, comment) in cases.items():
            before_ms = lab.server_ms()
            client[name].append(1e3 * lab.submit_s(comment))
            server[name].append(lab.server_ms() - before_ms)
    for lab, _ in cases.values():
        lab.cancel()
    return {
        name: {
            "client_median_ms": round(statistics.median(client[name]), 3),
            "client_least_ms": round(min(client[name]), 3),
            "slurmctld_median_ms": round(statistics.median(server[name]), 3),
            "slurmctld_least_ms": round(min(server[name]), 3),
        }
        for name in cases
    }


def hung(lab: Lab) -> dict[str, dict[str, float]]:
    """A frozen daemon: what the first submit waits, and those after it."""
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
    """No daemon at all."""
    lab.control("kill", "rightsizer")
    found = rounds({"no plugin ": (bare, OURS), "daemon down": (lab, OURS)}, count)
    lab.control("start", "rightsizer")
    return {"daemon down": found["daemon down"]}


def answers(lab: Lab, count: int) -> dict[str, dict[str, float]]:
    """What the daemon itself takes: the first job of a kind, another deadline, the same; after a restart."""
    conf = Path(lab.slurm["RIGHTSIZER_SLURM_CONF"])
    path = conf.parent.parent / "run" / "rightsizer" / "plan.sock"
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
        lab.control("start", "rightsizer")
        time.sleep(NOTED_S)
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
        connection.sendall(f"RIGHTSIZER 1 PLAN\nkind=cli\ncomment={comment}\nEND\n".encode())
        with connection.makefile("rb") as answer:
            if b" OK\n" not in answer.readline():
                raise SystemExit(f"no size for {comment}")
            answer.read()
    return time.perf_counter() - began_s


def site_settings(lab: Lab) -> None:
    """The settings of deploy/slurm, but for paths: the tests' own are more patient."""
    path = Path(lab.slurm["RIGHTSIZER_SLURM_CONF"])
    text = path.read_text()
    for key, value in (("timeout_s", 0.3), ("hold_after_s", 0.15), ("cooldown_s", 30)):
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    path.write_text(text)
    time.sleep(SEEN_S)


def extra_ms(found: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """What each kind costs more than no plugin, beside its goal."""
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
        site_settings(lab)
        lab.submit_s(OURS)
        time.sleep(10)  # the first size may have been a hold; from here on it is in the memo for a minute
        cases = {
            "no plugin": (bare, OTHER),
            "other jobs: plugin": (lab, OTHER),
            "sized from the memo": (lab, OURS),
        }
        found = rounds(cases, given.rounds)
        sizes = answers(lab, max(5, given.rounds // 5))
        found |= hung(lab)
        found |= down(lab, bare, max(10, given.rounds // 4))
    finally:
        bare.control("down")
        lab.control("down")
    document = {
        "submits": found,
        "over no plugin": extra_ms(found),
        "the daemon's own time": sizes,
        "rounds": given.rounds,
        "load_average": round(os.getloadavg()[0], 2),
        "cpus": os.cpu_count(),
        "real_time": os.sched_getscheduler(0) == os.SCHED_RR,
    }
    write_json(given.out, document)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
