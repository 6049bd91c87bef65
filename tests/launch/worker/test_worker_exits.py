"""Ends of a worker: by a code, a signal, or the kernel for want of memory (cgroup versions 1 and 2)."""

import os
import signal

import pytest

from rightsizer_launch.worker.progress import last_numbers, restarts
from rightsizer_launch.worker.restart_monitor import RestartMonitor
from rightsizer_launch.worker.worker_exits import describe_exit, oom_kills


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "worker exited with code 3"),
        (-11, "worker killed by signal 11 (SIGSEGV)"),
        (-99, "worker killed by signal 99 (unknown)"),
    ],
)
def test_an_exit_code_is_stated_in_words(code, words):
    assert describe_exit(code) == words


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory.events", "low 0\noom 2\noom_kill 2\noom_group_kill 0\n"),
        ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
    ids=["version 2", "version 1"],
)
def test_the_kernel_s_oom_kills_are_counted(tmp_path, name, text):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert oom_kills(tmp_path) == 2
    assert oom_kills(tmp_path / "nothing") == 0


@pytest.fixture
def monitor(tmp_path, monkeypatch):
    """A monitor, the numbers of OOM kills that it will read, and whether it gave up."""
    monkeypatch.setenv("RIGHTSIZER_RESTART_LIMIT", "2")
    monkeypatch.setenv("RIGHTSIZER_RUN_DIRECTORY", str(tmp_path))
    kills, gave_up = [0], []
    made = RestartMonitor(tmp_path, give_up=lambda: gave_up.append(True), count_oom_kills=lambda: kills[0])
    return made, kills, gave_up


@pytest.mark.parametrize(("kills", "words"), [(1, "OOMKilled"), (0, "signal 9 (SIGKILL)")])
def test_a_killed_worker_ran_out_of_memory_if_the_kernel_logged_it(monitor, kills, words):
    watch, count, gave_up = monitor
    count[0] = kills
    watch.worker_failed(-signal.SIGKILL)
    assert words in watch.cause
    assert ("OOMKilled" in watch.cause) == bool(kills)
    assert not gave_up


def test_a_script_that_wants_no_retry_gets_none(monitor):
    watch, _, gave_up = monitor
    watch.worker_failed(os.EX_USAGE)
    assert (gave_up, watch.exit_code) == ([True], 64)


def test_a_stop_for_another_pod_is_no_restart(tmp_path):
    told = {"TORCHELASTIC_RESTART_COUNT": "3", "RIGHTSIZER_OUTCOME_FILE": str(tmp_path / "outcome")}
    assert restarts(told) == 3
    (tmp_path / "come-backs").write_bytes(b"..")
    assert restarts(told) == 1


def test_the_last_numbers_are_the_run_s_own(tmp_path):
    where = {"RIGHTSIZER_RUN_DIRECTORY": str(tmp_path)}
    assert last_numbers(where) == ""
    (tmp_path / "done.json").write_text("{}")
    assert last_numbers(where) == "{}"
