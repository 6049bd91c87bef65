"""A real control plane with one real node and a thousand KWOK nodes, and the operator as a process."""

import collections
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
CONTROL = ROOT / "tests" / "e2e" / "cluster" / "cluster.py"
LOGS = Path("/tmp") / "rightsizer-bench"  # noqa: S108 -- logs of a bench
GRACE_S = 3600  # pretended nodes need no heartbeats, which would be all that a small machine does
STAGES = ("node/fast/node-initialize.yaml", "pod/fast/pod-ready.yaml", "pod/fast/pod-delete.yaml")
OWN = tuple(f"rightsizer_operator_{n}" for n in ("queue", "reconcile_seconds_count", "api_requests_total"))
WRITES = ("POST", "PATCH", "DELETE")


def control(name: str, *arguments: str) -> str:
    """cluster.py for the bench's cluster."""
    settings = {
        "RIGHTSIZER_CLUSTER": name,
        "RIGHTSIZER_CLUSTER_NODES": "1",
        "RIGHTSIZER_CLUSTER_NODE_GRACE_S": str(GRACE_S),
    }
    argv = [sys.executable, str(CONTROL), *arguments]
    done = subprocess.run(
        argv, check=False, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}
    )
    if done.returncode:
        sys.exit(f"cluster.py {' '.join(arguments)} failed")
    return done.stdout.strip()


@contextlib.contextmanager
def cluster(name: str) -> Iterator[Path]:
    """The kubeconfig of a cluster of the bench's own, taken down at the end."""
    kubeconfig = Path(control(name, "up").removeprefix("export KUBECONFIG="))
    try:
        yield kubeconfig
    finally:
        control(name, "down")


@contextlib.contextmanager
def kwok(name: str, kubeconfig: Path) -> Iterator[None]:
    """KWOK, which simulates the nodes that are annotated as fake, and the pods on them."""
    binary = Path(control(name, "tool", "kwok"))
    argv = [str(binary), f"--kubeconfig={kubeconfig}", f"--node-lease-duration-seconds={GRACE_S}"]
    argv += [f"--config={binary.parent / 'stages' / stage}" for stage in STAGES]
    argv += ["--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--cidr=10.240.0.0/12"]
    with _running(argv, LOGS / "kwok.log", {}):
        yield


@contextlib.contextmanager
def _running(argv: list[str], log: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **settings})
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A running operator: its metrics, and its use of the machine."""

    pid: int
    port: int
    began_s: float

    def metrics(self) -> dict[str, float]:
        """Its metrics, by name (and method, where they have one); empty before it listens."""
        try:
            text = self._fetch(*OWN)
        except OSError:
            return {}
        return {
            f"{sample.name}{{{sample.labels['method']}}}" if "method" in sample.labels else sample.name: (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def states(self) -> dict[str, int]:
        """Plans by state."""
        families = text_string_to_metric_families(self._fetch("rightsizer_plans"))
        return {
            sample.labels["state"]: int(sample.value)
            for family in families
            for sample in family.samples
            if sample.value
        }

    def _fetch(self, *names: str) -> str:
        """Metrics by name: rendering thousands of gauges twice a second would affect the measurement."""
        query = urllib.parse.urlencode([("name[]", name) for name in names])
        address = f"http://127.0.0.1:{self.port}/metrics?{query}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.read().decode()

    def writes(self) -> float:
        """Write requests since its start, without the Lease, which is a PUT."""
        metrics = self.metrics()
        return sum(metrics[f"rightsizer_operator_api_requests_total{{{method}}}"] for method in WRITES)

    def reads(self) -> float:
        """Read requests, without watches."""
        return self.metrics()["rightsizer_operator_api_requests_total{GET}"]

    def rss_bytes(self, which: str = "VmHWM") -> int:
        """Resident memory: the most so far (VmHWM), or now (VmRSS)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith(which)))

    def cpu_s(self) -> float:
        """Processor time so far."""
        return _cpu_s(Path(f"/proc/{self.pid}"))


@contextlib.contextmanager
def operator(kubeconfig: Path, namespace: str) -> Iterator[Operator]:
    """The operator, as `rightsizer operator` outside a cluster."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [str(Path(sys.executable).with_name("rightsizer")), "operator", f"--port={port}"]
    argv += [f"--namespace={namespace}", f"--lease-namespace={namespace}"]
    began_s = time.monotonic()
    with _running(argv, LOGS / "operator.log", {"KUBECONFIG": str(kubeconfig)}) as process:
        yield Operator(pid=process.pid, port=port, began_s=began_s)


def processor_s(kubeconfig: Path) -> collections.Counter[str]:
    """Processor time so far of this process and of each that serves the cluster, by program."""
    found = collections.Counter({"bench": time.process_time()})
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            words = (process / "cmdline").read_text().split("\0")
            if str(kubeconfig.parent) in " ".join(words) and int(process.name) != os.getpid():
                found[Path(words[0]).name] += _cpu_s(process)
    return found


def _cpu_s(process: Path) -> float:
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load() -> tuple[float, float, float]:
    """The machine's load average: of the last 1, 5 and 15 minutes."""
    return os.getloadavg()


def dump(path: Path, value: object) -> None:
    """JSON in a file."""
    path.write_text(json.dumps(value, indent=2) + "\n")
