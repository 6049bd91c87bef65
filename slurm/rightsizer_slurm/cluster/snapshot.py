"""A snapshot of a Slurm cluster: partitions, nodes, GPUs up and free. Parsed from `scontrol`.

`scontrol --oneliner show node|partition` prints the same Key=Value lines from 22.05 to 26.05. 22.05 has no
JSON, and its format changed twice since.
"""

import datetime as dt
import re
from collections.abc import Iterator
from itertools import zip_longest

from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.hostlist import HostListError, expand
from rightsizer_slurm.cluster.jobs import other_gres
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError

_UP = frozenset({"IDLE", "MIXED", "ALLOCATED", "COMPLETING"})
_NOT_FOR_JOBS = frozenset(
    {"DRAIN", "DOWN", "FAIL", "MAINT", "MAINTENANCE", "NOT_RESPONDING", "INVALID_REG", "INVAL",
     "POWERING_DOWN", "REBOOT", "REBOOT_ISSUED", "RESERVED", "BLOCKED"}
)  # fmt: skip
_SUFFIXES = "*~#!%$@^-"  # suffixes of a state: not responding, powered down, rebooting ...
_SILENT = "*"
_GPUS = re.compile(r"^gpu(?::([^:(]*[^\d:(][^:(]*))?(?::(\d+))?(?:\(.*\))?$")
_SLICE = re.compile(r"\d+g\.\d+gb")  # a MIG slice: gpu:1g.10gb, gpu:h100_3g.40gb
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w/:.%()]*)=")


@immutable
class SlurmNode:
    """One node. `gpu` is its GRES type, empty if untyped; of several types, whole GPUs before slices.

    `gres` are the names of its other generic resources. `reserved`: up for the jobs of its reservation only.
    """

    name: str
    up: bool = True
    gpu: str = ""
    gpus: int = 0
    gpus_used: int = 0
    cpus: int = 1
    memory_bytes: float = 0.0
    features: tuple[str, ...] = ()
    gres: tuple[str, ...] = ()
    reserved: bool = False

    @property
    def free(self) -> bool:
        """Whether the node is up and none of its GPUs is in use."""
        return self.up and self.gpus > 0 and self.gpus_used == 0


@immutable
class Partition:
    """One partition and its limits (None: no limit). `accounts`, `groups`, `qos` may use it (empty: all).

    `own_qos` is the partition's QOS.
    """

    name: str
    nodes: tuple[str, ...] = ()
    up: bool = True
    default: bool = False
    max_time_s: float | None = None
    min_nodes: int = 0
    max_nodes: int | None = None
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    own_qos: str = ""


@immutable
class Reservation:
    """One reservation: its nodes, how many of their cores, and its time; None: not stated."""

    name: str
    nodes: tuple[str, ...] = ()
    cores: int = 0
    active: bool = False
    starts_at: dt.datetime | None = None
    ends_at: dt.datetime | None = None


@immutable
class SlurmCluster:
    """Partitions, nodes and reservations at one time."""

    partitions: tuple[Partition, ...] = ()
    nodes: tuple[SlurmNode, ...] = ()
    reservations: tuple[Reservation, ...] = ()

    def partition(self, name: str) -> Partition | None:
        """The partition of that name."""
        return next((p for p in self.partitions if p.name == name), None)

    @property
    def default(self) -> Partition | None:
        """The default partition."""
        return next((p for p in self.partitions if p.default), None)

    def nodes_of(self, partition: Partition) -> tuple[SlurmNode, ...]:
        """The partition's nodes."""
        members = frozenset(partition.nodes)
        return tuple(node for node in self.nodes if node.name in members)

    def summary(self) -> str:
        """GPUs that are up, by type and partition, as text."""
        parts = []
        for partition in self.partitions:
            for gpu in sorted({node.gpu for node in self.nodes_of(partition) if node.gpus and node.up}):
                alike = [n for n in self.nodes_of(partition) if n.up and n.gpu == gpu]
                count, free = sum(n.gpus for n in alike), sum(n.gpus - n.gpus_used for n in alike)
                parts.append(f"{partition.name}: {count} x {gpu or 'gpu'} ({free} free)")
        return ", ".join(parts) or "no GPU nodes"


def read(slurm: Slurm) -> SlurmCluster:
    """Read the cluster through `scontrol`. SlurmError if it fails."""
    partitions = slurm.run("scontrol", "--oneliner", "show", "partition")
    nodes = slurm.run("scontrol", "--oneliner", "--detail", "show", "node")
    reservations = slurm.run("scontrol", "--oneliner", "show", "reservation")
    return parse(partitions=partitions, nodes=nodes, reservations=reservations)


def parse(*, partitions: str, nodes: str, reservations: str = "") -> SlurmCluster:
    """Parse the outputs of scontrol."""
    return SlurmCluster(
        partitions=tuple(_partition(record) for record in records(partitions) if "PartitionName" in record),
        nodes=tuple(_node(record) for record in records(nodes) if "NodeName" in record),
        reservations=tuple(
            _reservation(record) for record in records(reservations) if "ReservationName" in record
        ),
    )


def records(text: str) -> Iterator[dict[str, str]]:
    """The Key=Value fields of each line; of a repeated key the first, because free text comes last."""
    for line in text.splitlines():
        matches = list(_FIELD.finditer(line))
        record: dict[str, str] = {}
        for match, after in zip_longest(matches, matches[1:]):
            end = after.start() if after else len(line)
            record.setdefault(match[1], line[match.end() : end].strip())
        if record:
            yield record


def clock_s(text: str) -> float | None:
    """Seconds of Slurm's [days-]hours:minutes:seconds; None for UNLIMITED, NONE and anything else."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 86_400.0 + hours * 3600 + minutes * 60 + seconds


def _node(record: dict[str, str]) -> SlurmNode:
    gpus = _gpus(record.get("Gres", ""))
    kind = max(gpus, key=lambda name: (not _SLICE.search(name), gpus[name]), default="")
    used = _gpus(record.get("GresUsed", ""))
    return SlurmNode(
        name=record["NodeName"],
        up=_is_up(record.get("State", "")),
        reserved=_is_up(re.sub(r"\+(RESERVED|MAINT|MAINTENANCE)\b", "", record.get("State", ""))),
        gpu=kind,
        gpus=gpus.get(kind, 0),
        gpus_used=min(used.get(kind, 0), gpus.get(kind, 0)),
        cpus=_number(record.get("CPUEfctv", record.get("CPUTot", ""))) or 1,
        memory_bytes=_number(record.get("RealMemory", "")) * 2.0**20,
        features=_names(record.get("ActiveFeatures", "")),
        gres=tuple(item.split(":")[0] for item in other_gres(record.get("Gres", ""))),
    )


def _reservation(record: dict[str, str]) -> Reservation:
    return Reservation(
        name=record["ReservationName"],
        nodes=_hosts(record.get("Nodes", "")),
        cores=_number(record.get("CoreCnt", "")),
        active=record.get("State") == "ACTIVE",
        starts_at=_time(record.get("StartTime", "")),
        ends_at=_time(record.get("EndTime", "")),
    )


def _time(text: str) -> dt.datetime | None:
    """A time of scontrol, which prints this machine's local time."""
    try:
        return dt.datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None


def _is_up(state: str) -> bool:
    """Whether the node accepts jobs: IDLE, MIXED+PLANNED; not DOWN*, IDLE+DRAIN."""
    states = [word.rstrip(_SUFFIXES) for word in state.upper().split("+")]
    silent = any(word.endswith(_SILENT) for word in state.split("+"))
    return states[0] in _UP and not silent and not _NOT_FOR_JOBS.intersection(states)


def _gpus(gres: str) -> dict[str, int]:
    """GPUs by type of `gpu:h100:8(S:0-1),nic:2`; a bare gpu:8 has the type ""."""
    counts: dict[str, int] = {}
    for part in re.split(r",(?![^(]*\))", gres):
        match = _GPUS.match(part.strip())
        if match:
            counts[match[1] or ""] = counts.get(match[1] or "", 0) + int(match[2] or 1)
    return counts


def _partition(record: dict[str, str]) -> Partition:
    return Partition(
        name=record["PartitionName"],
        nodes=_hosts(record.get("Nodes", "")),
        up=record.get("State", "UP") == "UP",
        default=record.get("Default") == "YES",
        max_time_s=clock_s(record.get("MaxTime", "")),
        min_nodes=_number(record.get("MinNodes", "")),
        max_nodes=_number(record.get("MaxNodes", "")) or None,
        accounts=_names(record.get("AllowAccounts", "")),
        groups=_names(record.get("AllowGroups", "")),
        qos=_names(record.get("AllowQos", "")),
        own_qos="".join(_names(record.get("QoS", ""))[:1]),
    )


def _hosts(text: str) -> tuple[str, ...]:
    if text in ("", "(null)"):
        return ()
    try:
        return expand(text)
    except HostListError:
        raise SlurmError("scontrol", f"invalid node list: {text[:80]}") from None


def _names(text: str) -> tuple[str, ...]:
    return () if text in ("", "(null)", "ALL", "N/A") else tuple(text.split(","))


def _number(text: str) -> int:
    """The integer at the start of a value; 0 for UNLIMITED and the like."""
    match = re.match(r"\d{1,15}", text)
    return int(match.group()) if match else 0
