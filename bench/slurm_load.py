"""The Slurm daemon's memory under heavy requests: `python -m bench.slurm_load`, as root, on a real Slurm.

No request is cached: each is a mixture of experts at another sequence length. The
daemon has its packaged settings. Memory is anonymous and proportional (Pss_Anon): what processes share counts
once. Mapped files are left out: how much of them counts depends on the machine's other Python processes.
"""

import argparse
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bench.results import RESULTS, write_json
from bench.slurm import COLD, OURS, Lab

from rightsizer_slurm.submit.protocol import request_text

CLIENTS = 8
TRIES = 10  # the daemon lets a request wait 4 s
SETTLED_S = 10.0


def sized(path: Path, comment: str) -> str:
    """The daemon's verdict. A request that waits too long for its size is sent again."""
    for _ in range(TRIES):
        verdict = asked(path, comment)
        if verdict != "KEEP":
            break
    return verdict


def asked(path: Path, comment: str) -> str:
    """The first word of the daemon's response to a request."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(600)
        connection.connect(str(path))
        connection.sendall(request_text({"kind": "cli", "comment": comment}))
        with connection.makefile("r") as answer:
            words = answer.readline().split()
            answer.read()
    return words[2] if len(words) > 2 else "none"


def processes(conf: str) -> Iterator[int]:
    """The daemon with this configuration, and its children."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,args="], check=True, capture_output=True, text=True
    )
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    named = {pid: parent for pid, parent, *arguments in rows if conf in " ".join(arguments)}
    own = named.keys() - named.values()  # its parents put it into its namespaces
    return (int(pid) for pid, parent, *_ in rows if pid in own or parent in own)


def memory_mib(conf: str) -> float:
    """Anonymous PSS of the daemon and its children; a process that ends meanwhile counts nothing."""
    total_kib = 0
    for process in processes(conf):
        try:
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            continue
        found = re.search(r"^Pss_Anon:\s+(\d+) kB", rollup, re.MULTILINE)
        total_kib += int(found[1]) if found else 0
    return total_kib / 1024


def flood(lab: Lab, requests: int) -> dict[str, object]:
    """The daemon's memory before, at most during and after so many requests."""
    conf = lab.slurm["RIGHTSIZER_SLURM_CONF"]
    path = lab.plan_socket
    asked(path, OURS)
    before = peak = memory_mib(conf)
    with ThreadPoolExecutor(CLIENTS) as pool:
        waiting: list[Future[str]] = [
            pool.submit(sized, path, COLD.format(256 + 8 * number)) for number in range(requests)
        ]
        while not all(each.done() for each in waiting):
            peak = max(peak, memory_mib(conf))
            time.sleep(0.5)
    time.sleep(SETTLED_S)
    return {
        "requests": requests,
        "not_sized": sum(each.result() != "OK" for each in waiting),
        "before_mib": round(before, 1),
        "peak_mib": round(peak, 1),
        "after_mib": round(memory_mib(conf), 1),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--json", type=Path, default=RESULTS / "slurm_load.json")
    given = parser.parse_args(arguments)
    lab = Lab("benchload", plugin=True)
    try:
        document = flood(lab, given.requests)
    finally:
        lab.control("down")
    write_json(given.json, document)
    print(given.json.read_text(), end="")


if __name__ == "__main__":
    main()
