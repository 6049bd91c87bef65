"""Users who try to stop the daemon: paths that are no plans, full disks, floods."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

COMMENT = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
COLD = "rightsizer: model=mixtral-8x7b tokens=2B deadline=72h sequence-length={}"


@pytest.fixture
def fresh(site: Any) -> Iterator[Any]:
    """The site with a daemon that has sized nothing yet."""
    site.restart()
    yield dataclasses.replace(site, again=False)
    site.slurm.cancel_all()


def _note(site: Any, job: str) -> str:
    return str(site.slurm.job(job).get("AdminComment", ""))


def _sized(site: Any, comment: str = COMMENT, **options: Any) -> Any:
    """Submit a job, and wait until it is sized."""
    submitted = site.sbatch(comment, hold=False, **options)
    job = submitted.job["JobId"]
    site.slurm.wait("the job is sized", lambda: "nodes=" in _note(site, job))
    return submitted


def test_plans_that_are_no_files_are_refused_and_others_are_sized(fresh: Any) -> None:
    paths = {kind: fresh.folder / kind for kind in ("folder", "pipe", "device", "huge")}
    paths["folder"].mkdir()
    os.mkfifo(paths["pipe"])
    paths["device"].symlink_to("/dev/zero")
    paths["huge"].touch()
    os.truncate(paths["huge"], 1 << 40)
    wrong = {}
    for kind, path in paths.items():
        os.chown(path, 65534, 65534, follow_symlinks=False)
        wrong[kind] = fresh.sbatch(f"rightsizer: plan={path}", user="nobody", hold=False)
    other = fresh.sbatch(COMMENT, hold=False)
    ended = {kind: each if each.job is None else fresh.settled(each) for kind, each in wrong.items()}
    assert {kind: each.said for kind, each in ended.items() if each.job or "plan: " not in each.said} == {}
    fresh.slurm.wait("the other is sized", lambda: "nodes=" in _note(fresh, other.job["JobId"]))


def test_a_full_disk_holds_no_job(site: Any, tmp_path_factory: Any) -> None:
    disk = Path("/run/rightsizer-slurm") / f"disk-{os.getpid()}"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "none", disk], check=True)
    site = dataclasses.replace(site, again=False)
    try:
        with site.settings(state=disk / "state.db", restart=True):
            _sized(site)
            with contextlib.suppress(OSError), (disk / "full").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            for length in (1024, 2048, 3072):
                _sized(site, COLD.format(length))
            assert "held jobs are in memory only: " in site.log()
    finally:
        site.slurm.cancel_all()
        subprocess.run(["umount", "--lazy", disk], check=True)
        shutil.rmtree(disk)


def test_when_the_daemon_ends_no_job_stays_held(fresh: Any) -> None:
    slurm = fresh.slurm
    sized = _sized(fresh).job["JobId"]
    for process, arguments in _daemon(fresh).items():
        if "bounded.process" in arguments:
            os.kill(process, signal.SIGSTOP)  # sizes nothing from here on, however fast it is
    held = [fresh.sbatch(COLD.format(256 * number), hold=False).job["JobId"] for number in (1, 2, 3)]
    slurm.control("end", "rightsizer")
    notes = [_note(fresh, job) for job in held]
    fresh.start()
    assert [note for note in notes if "not sized: " not in note] == []
    assert "nodes=" in _note(fresh, sized)


def test_a_flood_of_one_user_delays_no_other_and_stays_within_its_memory(fresh: Any) -> None:
    flood = [fresh.sbatch(COLD.format(256 + 8 * number), hold=False).job["JobId"] for number in range(72)]
    mine = _sized(fresh, COMMENT, user="nobody")
    waiting = [job for job in flood if "ticket=" in fresh.slurm.job(job)["Comment"]]
    assert waiting, "the flood was sized before the other user's job"
    assert "is held" in mine.said
    assert _resident_mib(fresh) < 1500
    fresh.slurm.cancel_all()


def _daemon(site: Any) -> dict[int, str]:
    """The arguments of the daemon and its children, by process."""
    all_of_each = ["ps", "-ww", "-eo", "pid=,ppid=,args="]
    listed = subprocess.run(all_of_each, check=True, capture_output=True, text=True)
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    named = {pid: parent for pid, parent, arguments in rows if str(site.conf) in arguments}
    (own,) = named.keys() - named.values()  # its parents put it into its namespaces
    return {int(pid): arguments for pid, parent, arguments in rows if own in (pid, parent)}


def _resident_mib(site: Any) -> float:
    """Resident memory of the daemon and its children."""
    pages = (Path(f"/proc/{process}/statm").read_text().split()[1] for process in _daemon(site))
    return sum(map(int, pages)) * os.sysconf("SC_PAGESIZE") / (1 << 20)
