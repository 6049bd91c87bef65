"""The fixtures `cluster` and `slurm`: a whole Kubernetes and a whole Slurm on this machine.

They are for tests marked `kubernetes` and `slurm`.
"""

import functools
import os
import re
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

sys.path.append(str(Path(__file__).parent))
from api_client import ApiClient

CONTROL = Path(__file__).resolve().parent / "cluster" / "cluster.py"
PATIENCE = 5
"""Waits are stated as on a machine that has nothing else to do; one that has is waited for so much longer."""
LONGEST_WAIT_S, LONGEST_TEST_S = 600, 1200
"""What took longer has never come to a good end, and a test that hangs must not be all that CI does."""
UNTIL = "RIGHTSIZER_UNTIL"
"""Where CI says how long it has (seconds since the epoch): slow tests whose turn comes later are left out."""
AUDITED = ("kueue", "failures", "faults", "runs", "verbs")
"""What the test of the operator's verbs reads the audit log of, and that test: they share a cluster."""
OUTSIDE = ("advise", "api_storms", "autosize", "claims", "crashes", "crd", "sizing")
"""Tests of operators outside the cluster: between others, the one inside would stop and start each time."""
SLURM_CONTROL = Path(__file__).resolve().parent / "slurm" / "cluster.py"


def patience(within_s: float) -> float:
    """The longest wait on this machine."""
    return min(PATIENCE * within_s, LONGEST_WAIT_S)


def pause(began_s: float, *, least_s: float) -> None:
    """Between two looks of a wait: longer the longer it lasts, since each look costs processor time."""
    time.sleep(min(0.5, max(least_s, (time.monotonic() - began_s) / 20)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only `-m kubernetes` starts a cluster: a plain `pytest` must not surprise anybody with one."""
    unasked = [
        m for m in ("kubernetes", "slurm", "stacks", "install") if m not in (config.option.markexpr or "")
    ]
    skipped = [item for item in items if any(item.get_closest_marker(marker) for marker in unasked)]
    if skipped:
        config.hook.pytest_deselected(items=skipped)
        items[:] = [item for item in items if item not in skipped]
    for item in items:
        item.add_marker(pytest.mark.timeout(LONGEST_TEST_S))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """In CI nothing slow is begun when time is up."""
    late = UNTIL in os.environ and time.time() > float(os.environ[UNTIL])
    if late and item.get_closest_marker("slow"):
        pytest.skip("CI has no time left for it: run `make suite SUITE=kubernetes`")


def _module(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Clusters(LoadScopeScheduling):
    """Assigns modules, or groups of them, to the next free cluster; scripts/suites.py sets their number."""

    def _split_scope(self, nodeid: str) -> str:
        module = _module(nodeid)
        for group in (AUDITED, OUTSIDE):
            if any(f"operator/{name}/" in module or f"test_operator_{name}.py" in module for name in group):
                return group[0]
        return module


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Clusters | None:
    """Schedule whole groups, if requested: the tests of a group come in their order."""
    grouped = config.getoption("dist") == "loadgroup" and "kubernetes" in config.option.markexpr
    return Clusters(config, log) if grouped else None


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster: its API server, and cluster.py for what happens to machines."""

    name: str
    kubeconfig: Path
    kubectl_path: str

    def control(self, *arguments: str) -> str:
        """cluster.py with these arguments, e.g. "node-kill", "2"."""
        return _control(self.name, *arguments).stdout

    @functools.cached_property
    def api(self) -> ApiClient:
        """The administrator's requests, for frequent polling."""
        return ApiClient(self.kubeconfig)

    def kubectl(self, *arguments: str | Path, text: str | None = None) -> str:
        """The output of kubectl; a failure raises with the output."""
        argv = [self.kubectl_path, f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, input=text)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, manifest: str, namespace: str = "default") -> None:
        """Apply YAML."""
        self.kubectl("apply", "--namespace", namespace, "--filename", "-", text=manifest)

    def logs(self, pod: str, namespace: str = "default") -> str:
        """The pod's log so far; empty if it cannot be read yet."""
        argv = [self.kubectl_path, f"--kubeconfig={self.kubeconfig}", "logs", pod, "--namespace", namespace]
        return subprocess.run(argv, check=False, capture_output=True, text=True).stdout

    def ready_nodes(self) -> frozenset[str]:
        """The names of the nodes that are Ready; none while the API server is down."""
        try:
            nodes = self.api.get("nodes")["items"]
        except (RuntimeError, OSError):
            return frozenset()
        ready = {"type": "Ready", "status": "True"}.items()
        return frozenset(
            node["metadata"]["name"]
            for node in nodes
            if any(ready <= condition.items() for condition in node["status"]["conditions"])
        )

    def wait(self, what: str, condition: Callable[[], bool], within_s: float = 60) -> None:
        """Return when the condition holds; fail when it does not within what `patience` makes of that."""
        patience_s, began_s = patience(within_s), time.monotonic()
        while not condition():
            if time.monotonic() > began_s + patience_s:
                pods = self.kubectl("get", "pods,events", "--all-namespaces", "--output=wide")
                pytest.fail(f"{what}: not within {patience_s:.0f} s\n{pods}")
            pause(began_s, least_s=0.3)


def _control(name: str, *arguments: str, nodes: int = 3) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RIGHTSIZER_CLUSTER": name, "RIGHTSIZER_CLUSTER_NODES": str(nodes)}
    done = subprocess.run(
        [sys.executable, CONTROL, *arguments], check=False, capture_output=True, text=True, env=environment
    )
    if done.returncode != 0:
        pytest.fail(f"cluster.py {' '.join(arguments)}: {done.stderr.strip()}", pytrace=False)
    return done


@pytest.fixture(scope="session")
def control() -> Callable[..., subprocess.CompletedProcess[str]]:
    """cluster.py for a cluster of any name: control("crash", "up", nodes=1)."""
    return _control


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster of `scripts/ci.py up kubernetes` if it runs (and it stays), else one for this session.

    Each further worker of pytest-xdist has a cluster of its own.
    """
    name = os.environ.get("RIGHTSIZER_CLUSTER", "rightsizer")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if worker != "gw0":
        name = f"{name[:11]}{int(worker.removeprefix('gw')) + 1}"
    was_up = "pid" in _control(name, "status").stdout
    kubeconfig = _control(name, "up").stdout.removeprefix("export KUBECONFIG=").strip()
    kubectl = _control(name, "tool", "kubectl").stdout.strip()
    made = Cluster(name=name, kubeconfig=Path(kubeconfig), kubectl_path=kubectl)
    yield made
    made.api.close()
    if not was_up:
        _control(name, "down")


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> ApiClient:
    """The administrator's requests to the API server."""
    return cluster.api


def _namespace(cluster: Cluster) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.wait(
        "default service account",
        lambda: bool(cluster.api.get("serviceaccounts", namespace=name)["items"]),
    )
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own."""
    yield from _namespace(cluster)


@pytest.fixture(scope="module")
def common(cluster: Cluster) -> Iterator[str]:
    """A namespace that the tests of a module share."""
    yield from _namespace(cluster)


@pytest.fixture
def neighbour(cluster: Cluster) -> Iterator[str]:
    """Another one."""
    yield from _namespace(cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """A running Slurm: its commands, and cluster.py for what happens to machines."""

    name: str
    environment: Mapping[str, str]

    def control(self, *arguments: str) -> str:
        """cluster.py with these arguments, e.g. "node-down", "n2"."""
        return _slurm_control(self.name, *arguments).stdout

    def ask(
        self, *argv: str | Path, user: str | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One of Slurm's commands (as another user); the caller looks at how it ended."""
        return subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            env=dict(self.environment),
            user=user,
            cwd=cwd,
            timeout=120,
        )

    def run(self, *argv: str | Path, user: str | None = None, cwd: Path | None = None) -> str:
        """The output of a command; a failure raises with the output."""
        done = self.ask(*argv, user=user, cwd=cwd)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
        return done.stdout

    def job(self, job: str) -> dict[str, str]:
        """The fields of a job from `scontrol show job`."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job)
        return dict(re.findall(r"(?:^| )([A-Z][A-Za-z/:]*)=(.*?)(?= [A-Z][A-Za-z/:]*=|$)", shown.strip()))

    def metrics(self) -> str:
        """The daemon's /metrics; nothing while it does not serve them."""
        conf = Path(self.environment["RIGHTSIZER_SLURM_CONF"]).read_text()
        address = re.search(r"^metrics = (\S+)$", conf, re.MULTILINE)
        assert address is not None
        try:
            with urllib.request.urlopen(f"http://{address[1]}/metrics", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def wait(self, what: str, condition: Callable[[], bool], within_s: float = 60) -> None:
        """Return when the condition holds; fail when it does not within what `patience` makes of that."""
        patience_s, began_s = patience(within_s), time.monotonic()
        while not condition():
            if time.monotonic() > began_s + patience_s:
                state = self.ask("squeue", "--all").stdout + self.ask("sinfo").stdout
                pytest.fail(f"{what}: not within {patience_s:.0f} s\n{state}")
            pause(began_s, least_s=0.1)

    def cancel_all(self) -> None:
        """End every job, and wait until the nodes are free again."""
        listed = self.run("squeue", "--noheader", "--format=%A").split()
        if listed:
            self.ask("scancel", "--full", *sorted(set(listed)))
        self.wait("an empty queue", lambda: not self.run("squeue", "--noheader").strip())


def _slurm_control(
    name: str, *arguments: str, plugin: bool = True, accounting: bool = False
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "RIGHTSIZER_SLURM": name,
        "RIGHTSIZER_SLURM_PLUGIN": "on" if plugin else "off",
        "RIGHTSIZER_SLURM_ACCOUNTING": "on" if accounting else "off",
    }
    done = subprocess.run(
        [sys.executable, SLURM_CONTROL, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode != 0:
        pytest.fail(f"slurm/cluster.py {' '.join(arguments)}: {done.stderr.strip()}", pytrace=False)
    return done


@pytest.fixture(scope="session")
def slurm_control() -> Callable[..., subprocess.CompletedProcess[str]]:
    """slurm/cluster.py for a cluster of any name: slurm_control("bare", "up", plugin=False)."""
    return _slurm_control


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """The cluster of `scripts/ci.py up slurm` if it runs (and it stays), else one for this session.

    Where tests run side by side each worker but the first has a cluster of its own.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    name = os.environ.get("RIGHTSIZER_SLURM", "rightsizer") + ("" if worker == "gw0" else worker)
    was_up = "pid" in _slurm_control(name, "status").stdout
    exports = re.findall(r"^export (\w+)=(.*)$", _slurm_control(name, "up").stdout, flags=re.MULTILINE)
    home = {"PATH": os.environ["PATH"], "HOME": "/tmp", "LC_ALL": "C"}  # noqa: S108 (the users of tests have no home)
    yield Slurm(name=name, environment=home | dict(exports))
    if not was_up:
        _slurm_control(name, "down")
