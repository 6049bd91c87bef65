"""Faults of rightsizer leave a job as it was submitted; and the refusals of each mode."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

COMMENT = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
HEAD = "RIGHTSIZER 2 OK\n"
OLDER_DAEMON = (
    "RIGHTSIZER 1 KEEP\nsay=question: 'RIGHTSIZER 2 SIZE': is not a request of this protocol\nEND\n"
)


def as_written(submitted: Any, nodes: int = 2) -> bool:
    """True if the job still requests two nodes and no GPUs."""
    return (
        submitted.job is not None
        and "TresPerNode" not in submitted.job
        and submitted.tres["node"] == str(nodes)
    )


@pytest.fixture
def down(site: Any) -> Iterator[Any]:
    """The site without its daemon."""
    site.slurm.control("kill", "rightsizer")
    yield site
    site.start()


def test_with_the_daemon_down_a_job_is_submitted_unchanged_with_a_note(down: Any) -> None:
    submitted = down.sbatch(COMMENT, "--nodes=2")
    assert as_written(submitted)
    assert submitted.said.count("rightsizer: not sized (") == 1


def test_a_hung_daemon_is_waited_for_once(site: Any) -> None:
    site.slurm.control("stop", "rightsizer")
    try:
        with site.settings(timeout_s=1, why="a second is told from what a submit takes on a busy machine"):
            first, second = _timed(site), _timed(site)
    finally:
        site.slurm.control("continue", "rightsizer")
    assert as_written(first[1])
    assert as_written(second[1])
    assert first[0] >= 1.0
    assert second[0] < first[0]
    assert "the daemon did not answer a moment ago" in second[1].said
    site.reload()


def _timed(site: Any) -> tuple[float, Any]:
    began_s = time.monotonic()
    submitted = site.submit(COMMENT, "--nodes=2")
    return time.monotonic() - began_s, submitted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "garbage \x00\xff\n" * 10,
        "RIGHTSIZER 3 OK\nmin_nodes=1\nEND\n",
        OLDER_DAEMON,
        f"{HEAD}min_nodes=1\n",
        f"{HEAD}min_nodes=1\nmax_nodes=1\ngres=gpu:h100:8\nsay=half",
        f"{HEAD}min_nodes=99999999\nEND\n",
        f"{HEAD}min_nodes=-1\nEND\n",
        f"{HEAD}max_nodes=3\nmin_nodes=3\nEND\n",
        f"{HEAD}user_id=0\nEND\n",
        f"{HEAD}script=#!/bin/sh\nEND\n",
        f"{HEAD}gres=gpu:h100:8,nic:1\nEND\n",
        f"{HEAD}partition=a100,h100\nEND\n",
        f"{HEAD}env.LD_PRELOAD=/tmp/x.so\nEND\n",
        f"{HEAD}env.RIGHTSIZER_X=$(id)\nEND\n",
        f"{HEAD}admin_comment=other\nEND\n",
        f"{HEAD}priority=1\nEND\n",
        "RIGHTSIZER 2 EXPLODE\nEND\n",
        f"{HEAD}say={'x' * 20000}\nEND\n",
    ],
    ids=lambda text: text.removeprefix(HEAD).replace("\n", "|")[:24] or "nothing",
)
def test_a_response_that_is_wrong_in_any_part_changes_nothing(
    site: Any, stand_in: Callable[..., Path], text: str
) -> None:
    path = stand_in(_says(text))
    with site.settings(socket=path):
        submitted = site.sbatch(COMMENT, "--nodes=2", "--partition=h100")
    assert as_written(submitted)
    assert submitted.job["Partition"] == "h100"
    assert "the job is submitted unchanged" in submitted.said


def test_a_slow_response_is_not_waited_for(site: Any, stand_in: Callable[..., Path]) -> None:
    def drip(connection: socket.socket) -> None:
        connection.recv(8192)
        for letter in HEAD * 5:
            connection.sendall(letter.encode())
            time.sleep(1)

    with site.settings(socket=stand_in(drip)):
        spent_s, submitted = _timed(site)
    site.reload()
    assert as_written(submitted)
    assert spent_s < len(
        HEAD
    )  # a third of a second, on a machine with nothing else to do; all of it would take 80


def test_a_response_is_one_line_on_the_terminal_and_in_the_log(
    site: Any, stand_in: Callable[..., Path]
) -> None:
    text = "RIGHTSIZER 2 KEEP\nsay=good\x1b[2J\x07 %s %n\r bad\nEND\n"
    with site.settings(socket=stand_in(_says(text))):
        submitted = site.sbatch(COMMENT, "--nodes=2")
    assert as_written(submitted)
    assert submitted.said == "sbatch: rightsizer: good [2J  %s %n  bad\n"


@pytest.mark.parametrize("known", [True, False], ids=["read before", "never read"])
def test_without_its_settings_the_plugin_uses_the_last_valid_ones_or_does_nothing(
    site: Any, known: bool
) -> None:
    away, last = site.conf.with_suffix(".away"), site.conf.parent.parent / "state" / "rightsizer.conf.last"
    site.sbatch(COMMENT, "--nodes=2")
    site.conf.rename(away)
    try:
        if not known:
            last.unlink()
        site.reload()  # the plugin forgets what it has read
        submitted = site.sbatch(COMMENT, "--nodes=2")
    finally:
        away.rename(site.conf)
        site.seen()
    assert as_written(submitted) != known
    assert (submitted.said == "") != known


@pytest.mark.parametrize("broken", [None, "this is no Lua", "return 7", "return {}", "error('no')"])
def test_without_its_other_half_the_plugin_does_nothing(site: Any, broken: str | None) -> None:
    half = site.conf.with_name("rightsizer.lua")
    before = half.read_text()
    try:
        half.unlink() if broken is None else half.write_text(broken)
        site.reload()
        assert as_written(site.sbatch(COMMENT, "--nodes=2"))
    finally:
        half.write_text(before)
        site.reload()


def test_a_plugin_of_version_1_is_served_until_it_is_replaced(site: Any) -> None:
    """The daemon is upgraded first. Since version 1 a request has another number and another verb."""
    half = site.conf.with_name("rightsizer.lua")
    before = half.read_text()
    older = before.replace("VERSION = 2", "VERSION = 1").replace('" SIZE"', '" PLAN"')
    assert older != before
    try:
        half.write_text(older)
        site.reload()
        submitted = site.sbatch(COMMENT, "--nodes=2")
    finally:
        half.write_text(before)
        site.reload()
    assert submitted.job["TresPerNode"] == "gres:gpu:h100:1", submitted.said
    assert "1 x 1 h100" in submitted.said


def test_a_plugin_that_is_upgraded_first_lets_nothing_pass_unsized_where_sizes_are_enforced(
    site: Any, stand_in: Callable[..., Path]
) -> None:
    """Its job waits for the daemon that is upgraded next."""
    with site.settings("\n[partition h100]\nmode = enforce\n", socket=stand_in(_says(OLDER_DAEMON))):
        held = site.submit(COMMENT, "--gres=gpu:8", "--partition=h100")
        elsewhere = site.sbatch(COMMENT, "--nodes=2", "--partition=a100")
    assert "the daemon has protocol version 1" in held.said
    assert (held.job["JobState"], held.job["Reason"]) == ("PENDING", "JobHeldUser"), held.job
    assert as_written(elsewhere)
    site.restart()
    job = held.job["JobId"]
    site.slurm.wait("it is sized", lambda: "nodes=1 gpus=1" in site.slurm.job(job)["AdminComment"])


def test_the_mode_warn_prints_sizes_and_changes_no_job(site: Any) -> None:
    site.sbatch(COMMENT, "--nodes=2")  # now the size is known, and told in time on the slowest machine
    with site.settings(mode="warn"):
        submitted = site.sbatch(COMMENT, "--nodes=2")
        wrong = site.sbatch("rightsizer: modle=x", "--nodes=2")
    assert as_written(submitted)
    assert as_written(wrong)
    assert "not changed; would be: 1 x 1 h100" in submitted.said
    assert "would be refused: modle: " in wrong.said


def test_the_mode_off_prints_nothing(site: Any) -> None:
    with site.settings("\n[partition a100]\nmode = size\n", mode="off", restart=True):
        submitted = site.sbatch(COMMENT, "--nodes=2")
        other = site.sbatch(COMMENT, "--partition=a100")
    assert (as_written(submitted), submitted.said) == (True, "")
    assert "TresPerNode=gres:gpu:a100" in f"TresPerNode={other.job['TresPerNode']}"


def test_in_the_mode_enforce_a_gpu_job_must_state_its_training(site: Any) -> None:
    with site.settings("\n[partition h100]\nmode = enforce\n"):
        silent = site.sbatch("", "--gres=gpu:1")
        cores = site.sbatch("", "--nodes=2")
        other = site.sbatch("", "--gres=gpu:1", "--partition=a100")
        sized = site.sbatch(COMMENT)
    assert silent.job is None
    assert "GPU jobs in this partition need --comment=" in silent.said
    assert None not in (cores.job, other.job, sized.job)


def test_the_daemon_runs_as_slurms_user_and_serves_only_slurmctld(site: Any) -> None:
    path = site.conf.parent.parent / "run" / "rightsizer" / "plan.sock"
    assert path.owner() == "slurm"
    assert path.stat().st_mode & 0o777 == 0o666  # users = yes, for cli_filter
    with site.settings(users="no", restart=True):
        assert path.stat().st_mode & 0o777 == 0o660
        refused = subprocess.run(
            ["python3", "-c", f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"],
            user="nobody", cwd="/", check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert "PermissionError" in refused.stderr


def _says(text: str) -> Callable[[socket.socket], None]:
    def handler(connection: socket.socket) -> None:
        connection.recv(8192)
        connection.sendall(text.encode("latin-1"))

    return handler
