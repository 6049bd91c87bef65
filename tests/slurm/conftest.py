"""A cluster of two unlike partitions, as values."""

from pathlib import Path

import pytest

from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.cluster.snapshot import Partition, SlurmCluster, SlurmNode


@pytest.fixture(scope="session")
def cluster() -> SlurmCluster:
    """The cluster of the real tests: four nodes of 8 h100, two of 4 a100, all idle."""
    h100 = [SlurmNode(name=f"n{i}", gpu="h100", gpus=8, cpus=64) for i in range(1, 5)]
    a100 = [SlurmNode(name=f"a{i}", gpu="a100", gpus=4, cpus=32) for i in range(1, 3)]
    partitions = (
        Partition(name="h100", nodes=tuple(n.name for n in h100), default=True, max_time_s=7 * 86_400.0),
        Partition(name="a100", nodes=tuple(n.name for n in a100), max_time_s=2 * 86_400.0),
    )
    return SlurmCluster(partitions=partitions, nodes=(*h100, *a100))


NODES = "".join(
    f"NodeName=n{i} CPUTot=64 RealMemory=500000 Gres=gpu:h100:8 GresUsed=gpu:h100:0 State=IDLE\n"
    for i in range(1, 5)
)
PARTITIONS = "PartitionName=h100 Default=YES MaxTime=7-00:00:00 Nodes=n[1-4] State=UP\n"
COMMAND = """#!/bin/sh
printf '%s\\n' "${0##*/} $*" >> $folder/calls  # one write: commands run side by side
case "$*" in
*"show partition"*) name=partitions ;;
*"show node"*) name=nodes ;;
*"show config"*) name=config ;;
*) name=${0##*/} ;;
esac
env > $folder/env.$name
[ -e $folder/broken.$name ] && { cat $folder/broken.$name >&2; exit 1; }
cat $folder/out.$name
"""


class FakeSlurm:
    """A stand-in for Slurm's commands: scripts that print what `outputs` says and log their arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slurm = Slurm(folder=folder)
        for name in ("scontrol", "sacctmgr", "sbatch", "scancel", "squeue", "srun"):
            (folder / name).write_text(COMMAND.replace("$folder", str(folder)))
            (folder / name).chmod(0o755)
            self.prints(name, "")
        self.prints("partitions", PARTITIONS)
        self.prints("nodes", NODES)
        self.prints("config", "SLURM_CONF = /nowhere/slurm.conf\n")
        self.prints("sbatch", "42;main\n")
        self.prints("squeue", '{"jobs": []}')

    def prints(self, name: str, text: str) -> None:
        """Set what a command prints, and make it work."""
        (self.folder / f"out.{name}").write_text(text)
        (self.folder / f"broken.{name}").unlink(missing_ok=True)

    def breaks(self, name: str, text: str) -> None:
        """Make a command fail with this message."""
        (self.folder / f"broken.{name}").write_text(text)

    def calls(self, command: str) -> list[str]:
        """The arguments of each call of a command."""
        log = self.folder / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.removeprefix(command).strip() for line in lines if line.startswith(f"{command} ")]

    def environment(self, name: str) -> dict[str, str]:
        """The environment of the last call."""
        lines = (self.folder / f"env.{name}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def fake_slurm(tmp_path: Path) -> FakeSlurm:
    """Slurm's commands on four idle nodes of 8 h100."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    return FakeSlurm(folder)
