"""The places of a Slurm of this machine: its name, its files, its nodes. Nothing here does anything."""

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
RUNTIME = Path("/run/rightsizer-slurm")  # one folder for each cluster that runs
FIRST_PORT, LAST_PORT, PORTS = 16800, 19800, 30  # a cluster takes PORTS neighbours, the first free ones


class ClusterError(Exception):
    """A missing part or a failure, with its remedy, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Nodes alike, and the partition that holds them."""

    partition: str
    nodes: tuple[str, ...]
    gpu: str
    gpus: int
    cpus: int
    sockets: int
    memory_mb: int
    max_time: str


KINDS = (
    Kind(
        partition="h100",
        nodes=("n1", "n2", "n3", "n4"),
        gpu="h100",
        gpus=8,
        cpus=64,
        sockets=2,
        memory_mb=500_000,
        max_time="7-00:00:00",
    ),
    Kind(
        partition="a100",
        nodes=("a1", "a2"),
        gpu="a100",
        gpus=4,
        cpus=32,
        sockets=1,
        memory_mb=250_000,
        max_time="2-00:00:00",
    ),
)
NODES = tuple(node for kind in KINDS for node in kind.nodes)
USER = "slurm"  # what Debian's packages make


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One cluster of this machine; two with different names can run at once."""

    name: str
    plugin: bool  # job_submit.lua and the daemon, or a bare Slurm
    accounting: bool = False  # slurmdbd with its MariaDB

    @property
    def home(self) -> Path:
        """Everything of a running cluster; removed by `down`."""
        return RUNTIME / self.name

    @property
    def etc(self) -> Path:
        return self.home / "etc"

    @property
    def run(self) -> Path:
        return self.home / "run"

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def site(self) -> Path:
        """rightsizer.conf, for the plugin and the daemon."""
        return self.etc / "rightsizer.conf"

    @property
    def daemon(self) -> Path:
        """The daemon's folder: its socket, its state."""
        return self.run / "rightsizer"


def place() -> Place:
    """The cluster that RIGHTSIZER_SLURM names.

    RIGHTSIZER_SLURM_PLUGIN=off leaves the plugin out, RIGHTSIZER_SLURM_ACCOUNTING=on adds accounting.
    """
    name = os.environ.get("RIGHTSIZER_SLURM", "rightsizer")
    if not name.isalnum() or len(name) > 20:
        raise ClusterError(f"RIGHTSIZER_SLURM={name}: use at most 20 letters and digits")
    return Place(
        name=name,
        plugin=os.environ.get("RIGHTSIZER_SLURM_PLUGIN", "on") != "off",
        accounting=os.environ.get("RIGHTSIZER_SLURM_ACCOUNTING", "off") == "on",
    )
