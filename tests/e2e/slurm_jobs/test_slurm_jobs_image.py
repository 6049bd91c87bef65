"""Workers in the repository's own image, by a real Apptainer, as a user without root."""

import os
import pwd
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_slurm_jobs_stacks import last_rank
from training import Training

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        shutil.which("apptainer") is None, reason="no Apptainer: `make suite SUITE=slurm-image`"
    ),
]

REPOSITORY = Path(__file__).parents[3]
LAYOUT = Path("/srv/images/worker-transformers")
STRICT = "env: [{name: APPTAINER_CONTAIN, value: '1'}, "
"""Apptainer shows neither /tmp nor the home directory: only what the job needs is mounted."""


@pytest.fixture(scope="session")
def image() -> Path:
    """The worker image as a file; an older one is built again."""
    made, index = LAYOUT.with_suffix(".sif"), LAYOUT.with_suffix(".index.json")
    newest = (LAYOUT / "index.json").read_bytes()
    if not (made.exists() and index.exists() and index.read_bytes() == newest):
        fast = ["--mksquashfs-args", "-comp zstd -Xcompression-level 1"]
        scratch = {**os.environ, "APPTAINER_TMPDIR": "/srv"}
        build = ["apptainer", "--quiet", "build", "--force", "--disable-cache", *fast, made, f"oci:{LAYOUT}"]
        subprocess.run(build, check=True, env=scratch)
        index.write_bytes(newest)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTraining(Training):
    """A training of a user who is not root, with its checkpoints outside its folder."""

    checkpoints: Path

    def command(self, *arguments: str | Path) -> list[str]:
        user = pwd.getpwnam("nobody")
        drop = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return [*drop, *Training.command(self, *arguments)]

    def plan_in(self, image: Path) -> Path:
        """Write the plan, with its image and a folder of checkpoints that is not there yet."""
        path = self.plan()
        text = path.read_text().replace("framework: ddp", f"framework: ddp\n    image: {image}")
        text = text.replace("path: checkpoints", f"path: {self.checkpoints}").replace("env: [", STRICT)
        path.write_text(text)
        return path


@pytest.fixture
def mine(training: Training, tmp_path_factory: pytest.TempPathFactory) -> UserTraining:
    """That training."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for folder in (training.folder, elsewhere):
        shutil.chown(folder, "nobody", "nogroup")
        for each in folder.parents:
            each.chmod(each.stat().st_mode | 0o011)
    return UserTraining(slurm=training.slurm, folder=training.folder, checkpoints=elsewhere / "checkpoints")


def test_a_job_trains_is_killed_and_saves_at_its_limit_inside_the_image(
    mine: UserTraining, check: Any, image: Path
) -> None:
    mine.plan_in(image)
    job = mine.submit("--partition", "h100")
    mine.wait("two workers train", mine.trains(world=2))
    mine.wait("a checkpoint", mine.saved)
    worker = last_rank(mine, job)
    assert (mine.checkpoints / "state.pt").owner() == "nobody"
    assert seen_by(worker, mine.folder)
    assert seen_by(worker, mine.checkpoints / "state.pt")
    assert not seen_by(worker, REPOSITORY / "launch")  # the agent is the image's
    variables = environment(worker)
    assert variables["APPTAINER_CONTAINER"] == str(image)
    assert variables["RIGHTSIZER_CHECKPOINT_PATH"] == str(mine.checkpoints)
    assert (variables["PYTHONNOUSERSITE"], variables["GLOO_SOCKET_IFNAME"]) == ("1", "lo")

    seen = len(mine.records())
    os.kill(worker, signal.SIGKILL)
    mine.wait("both go on", mine.trains(world=2, since=seen))
    mine.slurm.run("scancel", "--batch", "--signal=USR1", job)  # as Slurm does before the time limit
    mine.wait("it saved and waits again", lambda: "rightsizer: saved; requeue" in mine.output())
    mine.wait("nothing of it is left", lambda: not mine.processes(job))
    assert mine.records()[-1]["event"] in {"checkpoint", "stop"}
    assert "Bus error" not in mine.output()  # the image stays mounted until all workers have ended
    assert check.continuous(mine.records())
    assert check.losses_fall(mine.records())


def test_a_job_saves_on_sigterm(mine: UserTraining, image: Path) -> None:
    mine.plan_in(image)
    job = mine.submit("--partition", "h100")
    mine.wait("a checkpoint", mine.saved)
    mine.wait("steps since", lambda: mine.records()[-1]["event"] == "step")
    mine.slurm.run("scancel", "--signal=TERM", job)
    mine.wait("nothing of it is left", lambda: not mine.processes(job))
    assert mine.records()[-1]["event"] in {"checkpoint", "stop"}


def test_an_image_that_is_not_there_is_refused_in_a_line(mine: UserTraining) -> None:
    done = mine.rightsizer("sbatch", mine.plan_in(Path("/none.sif")))
    assert done.returncode == 2
    assert "spec.launch.image: '/none.sif': no such file (seen from " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not mine.slurm.run("squeue", "--noheader").strip()


def seen_by(process: int, path: Path) -> bool:
    """Whether a process sees the path in its own file system."""
    return Path(f"/proc/{process}/root{path}").exists()


def environment(process: int) -> dict[str, str]:
    """The environment that a process was started with."""
    entries = Path(f"/proc/{process}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
