"""Real Prometheus servers, `live` with our rules and `bare` without, fed by a stand-in for GPU exporters."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.e2e.prometheus.server import Server

from rightsizer_launch.worker.rendezvous import free_port
from rightsizer_telemetry.client import FailedQuery

ROOT = Path(__file__).resolve().parents[3]
INTERVAL_S = 5
"""Of scrapes and of rules: the shipped 30 s would make a test of minutes of waiting."""
WARM_S = 190
"""Long enough for windows of a minute of rates over two."""

_DCGM_POD = {"namespace": "gpu-operator", "pod": "dcgm-x7k2p"}
TARGETS = (
    ("dcgm", "/dcgm", False, _DCGM_POD),
    ("dcgm-honoured", "/dcgm-honoured", True, _DCGM_POD),
    ("jobstats", "/jobstats", False, {"cluster": "hpc", "instance": "n5:9445"}),
    ("slurm-job-exporter", "/slurm-job-exporter", False, {"cluster": "hpc", "instance": "n6:9798"}),
    ("kube-state-metrics", "/kube-state-metrics", True, {}),
    ("agent", "/agent", False, {"namespace": "team", "pod": "llama-a1-0-x7k2p"}),
    ("agent-slurm", "/agent", False, {"cluster": "hpc", "jobid": "101"}),
    ("operator", "/operator", False, {"namespace": "rightsizer", "pod": "operator-0"}),
    ("slurm", "/slurm", True, {"instance": "slurmctl:8081"}),
)
"""Scrape jobs: name, path, honorLabels, and the labels that service discovery would attach."""


WARMED = {"live", "bare"}
"""Fixtures that wait until their server has data of minutes."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only `-m prometheus` starts servers. Tests that wait for data come last: others run meanwhile."""
    if "prometheus" in (config.option.markexpr or ""):
        items.sort(key=lambda item: bool(WARMED & set(getattr(item, "fixturenames", ()))))
        return
    skipped = [item for item in items if item.get_closest_marker("prometheus")]
    if skipped:
        config.hook.pytest_deselected(items=skipped)
        items[:] = [item for item in items if item not in skipped]


RULES = ("recording-rules.yaml", "alerts.yaml")


def configuration(folder: Path, port: int, rule_files: Sequence[str] = RULES) -> None:
    """prometheus.yml and shipped rules, evaluated more often."""
    names = []
    for name in rule_files:
        rules = yaml.safe_load((ROOT / "helm/rightsizer/monitoring" / name).read_text())
        for group in rules["groups"]:
            group["interval"] = f"{INTERVAL_S}s"
        (folder / name).write_text(yaml.safe_dump(rules))
        names.append(name)
    scrapes = [
        {
            "job_name": job,
            "metrics_path": path,
            "honor_labels": honour,
            "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}],
        }
        for job, path, honour, labels in TARGETS
    ]
    document = {
        "global": {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"},
        "rule_files": names,
        "scrape_configs": scrapes,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(document))


@pytest.fixture(scope="session")
def exporter() -> Iterator[int]:
    """The port of the stand-in exporter."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("exporter.py")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield int(process.stdout.readline())
    process.terminate()
    process.communicate()


@contextlib.contextmanager
def _started(folder: Path, exporter: int, rule_files: Sequence[str]) -> Iterator[Server]:
    server = Server(folder=folder, port=free_port())
    configuration(folder, exporter, rule_files)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Both, from the first test on."""

    live: Server
    bare: Server


@pytest.fixture(scope="session", autouse=True)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers | None]:
    """The servers that the selected tests need; they gather data while other tests run."""
    if not any(WARMED & set(getattr(item, "fixturenames", ())) for item in request.session.items):
        yield None
        return
    exporter = request.getfixturevalue("exporter")
    with (
        _started(tmp_path_factory.mktemp("prometheus"), exporter, RULES) as live,
        _started(tmp_path_factory.mktemp("bare"), exporter, ()) as bare,
    ):
        yield Servers(live=live, bare=bare)


@pytest.fixture(scope="session")
def live(servers: Servers) -> Server:
    """Prometheus with our rules and data over more than a minute."""
    _warm(servers.live, "rightsizer:workload_gpus:count {0} and on () rightsizer:train_step:max {0}", WARM_S)
    return servers.live


@pytest.fixture(scope="session")
def bare(servers: Servers) -> Server:
    """Prometheus without our rules, with raw data over more than a minute."""
    _warm(servers.bare, "DCGM_FI_PROF_GR_ENGINE_ACTIVE {0}", 70)
    return servers.bare


def _warm(server: Server, template: str, age_s: int) -> None:
    """Wait until the series are as old as that; a loaded machine takes its time."""
    query = template.format(f"offset {age_s}s")
    end_s = time.monotonic() + 600
    with server.client() as client:
        while time.monotonic() < end_s:
            answer = client.instant(query)
            if not isinstance(answer, FailedQuery) and answer:
                return
            time.sleep(2)
    pytest.fail(f"no recorded data:\n{(server.folder / 'log').read_text()[-3000:]}")
