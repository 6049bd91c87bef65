"""The monitor beside the daemon: it waits for its turn, and for Slurm, and ends when it is told to."""

import logging
import sqlite3
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from rightsizer_launch.worker.rendezvous import free_port
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.monitor.metrics import SweepMetrics
from rightsizer_slurm.monitor.service import run_in_daemon, sweeps
from rightsizer_slurm.monitor.settings import MonitorOptions, MonitorSettings
from rightsizer_slurm.state_file import alone

SCONTROL = '#!/bin/sh\n[ "$2" = config ] && echo "ClusterName = lab"\nexit 0\n'


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    """An empty cluster."""
    said = {"scontrol": SCONTROL, "squeue": '#!/bin/sh\necho \'{"jobs": []}\'\n',
            "sinfo": "#!/bin/sh\necho slurm 22.05.8\n"}  # fmt: skip
    for name, text in said.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return Slurm(folder=tmp_path)


def served(port: int) -> str:
    """The response there; empty while the service is down."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.slow
def test_it_waits_while_another_monitor_acts_and_then_works_and_ends(slurm: Slurm, tmp_path: Path) -> None:
    port, ended, state = free_port(), threading.Event(), tmp_path / "state.db"
    options = MonitorOptions(
        settings=MonitorSettings(every_s=0.05), state=state, backend="commands", metrics=("127.0.0.1", port)
    )
    thread = threading.Thread(target=run_in_daemon, args=(options, slurm, ended))
    with alone(state):
        thread.start()
        time.sleep(0.3)
        assert served(port) == ""
    until_s = time.monotonic() + 20
    while "rightsizer_slurm_sweep_seconds" not in served(port) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert "rightsizer_slurm_sweep_timestamp_seconds" in served(port)
    ended.set()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert served(port) == ""


class OnFullDisk:
    """A monitor whose first sweep cannot store its next action."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.looks = 0

    def sweep(self) -> tuple[()]:
        self.looks += 1
        if self.looks == 1:
            raise sqlite3.OperationalError("database or disk is full")
        return ()


def test_a_full_disk_is_one_line_and_the_next_sweep_runs(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monitor, metrics = OnFullDisk(), SweepMetrics(cluster="lab")
    twice = MonitorOptions(settings=MonitorSettings(every_s=0.0), state=tmp_path / "state.db", sweeps=2)
    with caplog.at_level(logging.ERROR):
        sweeps(monitor, twice, metrics, lambda _: False)  # type: ignore[arg-type]
    assert (monitor.looks, [record.getMessage() for record in caplog.records]) == (
        2,
        ["the state file cannot be used, no job is resized: database or disk is full"],
    )
