"""Accounting limits: limits of QOS and associations, kept by slurmdbd and enforced by slurmctld.

Slurm looks for each limit in this order and takes the first one: the partition's QOS, the job's QOS (first if
it has OverPartQOS), the user's association, the account's, the accounts above (resource_limits in Slurm's
documentation). A limit on a whole group also bounds one job, whatever the other jobs use.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType

from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.pools import Pool
from rightsizer_slurm.cluster.slurm_cli import Slurm, settings
from rightsizer_slurm.cluster.snapshot import Partition, clock_s

_QOS = ("Name", "Flags", "GrpTRES", "MaxTRESPerJob", "MaxTRESPerUser", "MaxTRESPerAccount", "MaxWall")
_ASSOCIATION = (
    *("Account", "User", "Partition", "ParentName", "DefaultQOS"),
    *("GrpTRES", "MaxTRESPerJob", "MaxWall"),
)
_USER = ("User", "DefaultAccount")
_OVER_PARTITION = "OverPartQOS"
_NORMAL = "normal"
"""The QOS of a job without one whose association has no default."""
_GPU, _NODE, _CORE = "gres/gpu", "node", "cpu"
_MOST_ANCESTORS = 64

Tres = Mapping[str, int]


def _no_limits() -> Tres:
    return MappingProxyType({})


@immutable
class Qos:
    """One QOS: limits on all its jobs, one job, one user's jobs, one account's jobs; None means no limit."""

    name: str
    flags: tuple[str, ...] = ()
    group: Tres = field(default_factory=_no_limits)
    job: Tres = field(default_factory=_no_limits)
    user: Tres = field(default_factory=_no_limits)
    account: Tres = field(default_factory=_no_limits)
    wall_s: float | None = None


@immutable
class Association:
    """An account (`user` empty) or a user in it; `partition` if it holds for one partition only."""

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    qos: str = ""
    group: Tres = field(default_factory=_no_limits)
    job: Tres = field(default_factory=_no_limits)
    wall_s: float | None = None


@immutable
class AccountingLimits:
    """All enforced limits. `accounts` has each user's default account."""

    qos: Mapping[str, Qos] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()
    accounts: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.qos or self.associations)


@immutable
class Bound:
    """The most that one job may have: counts by TRES, seconds. `sources` name the limit's owner by TRES."""

    tres: Tres = field(default_factory=_no_limits)
    wall_s: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)


def read(slurm: Slurm) -> AccountingLimits:
    """The limits from `sacctmgr`; empty without slurmdbd or if they are not enforced. SlurmError."""
    config = settings(slurm)
    enforced = config.get("AccountingStorageEnforce", "").lower()
    if "slurmdbd" not in config.get("AccountingStorageType", "") or "limits" not in enforced:
        return AccountingLimits()
    this_cluster = f"cluster={config.get('ClusterName', '')}"
    return parse(
        qos=_shown(slurm, "qos", _QOS),
        associations=_shown(slurm, "assoc", _ASSOCIATION, this_cluster),
        users=_shown(slurm, "user", _USER),
    )


def _shown(slurm: Slurm, what: str, columns: Iterable[str], *where: str) -> str:
    chosen = f"format={','.join(columns)}"
    return slurm.run("sacctmgr", "--noheader", "--parsable2", "show", what, *where, chosen)


def parse(*, qos: str, associations: str, users: str = "") -> AccountingLimits:
    """Parse sacctmgr's output: one row a line, columns separated by bars."""
    parsed = (_qos(row) for row in _rows(qos, _QOS))
    return AccountingLimits(
        qos={one.name: one for one in parsed},
        associations=tuple(_association(row) for row in _rows(associations, _ASSOCIATION)),
        accounts={row["User"]: row["DefaultAccount"] for row in _rows(users, _USER) if row["DefaultAccount"]},
    )


def _rows(text: str, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        values = line.split("|")
        if len(values) == len(columns):
            yield dict(zip(columns, values, strict=True))


def _qos(row: Mapping[str, str]) -> Qos:
    return Qos(
        name=row["Name"],
        flags=tuple(filter(None, row["Flags"].split(","))),
        group=_tres(row["GrpTRES"]),
        job=_tres(row["MaxTRESPerJob"]),
        user=_tres(row["MaxTRESPerUser"]),
        account=_tres(row["MaxTRESPerAccount"]),
        wall_s=clock_s(row["MaxWall"]),
    )


def _association(row: Mapping[str, str]) -> Association:
    return Association(
        account=row["Account"],
        user=row["User"],
        partition=row["Partition"],
        parent=row["ParentName"],
        qos=row["DefaultQOS"],
        group=_tres(row["GrpTRES"]),
        job=_tres(row["MaxTRESPerJob"]),
        wall_s=clock_s(row["MaxWall"]),
    )


def _tres(text: str) -> Tres:
    """Counts by name from cpu=64,gres/gpu:h100=8, without values that have a unit (memory)."""
    counts = re.findall(r"(?:^|,)([\w/:.-]+)=(\d+)(?=,|$)", text)
    return {name.lower(): int(count) for name, count in counts}


def allowed(limits: AccountingLimits, *, user: str, account: str, qos: str, partition: Partition) -> Bound:
    """The most that a job of this user may have in this partition."""
    if not limits:
        return Bound()
    mine = _chain(limits, user, account or limits.accounts.get(user, ""), partition.name)
    job_qos = qos or next((one.qos for one in mine if one.qos), "") or _NORMAL
    ranks = [limits.qos[name] for name in (partition.own_qos, job_qos) if name in limits.qos]
    ranks.sort(key=lambda one: _OVER_PARTITION not in one.flags)
    least: dict[str, tuple[int, str]] = {}
    for name, count, source in _stated(ranks, mine):
        if name not in least or count < least[name][0]:
            least[name] = (count, source)
    wall_s, wall_source = _wall(ranks, mine)
    sources = {name: source for name, (_, source) in least.items()}
    counts = {name: count for name, (count, _) in least.items()}
    return Bound(tres=counts, wall_s=wall_s, sources=sources | ({"wall": wall_source} if wall_source else {}))


def _chain(limits: AccountingLimits, user: str, account: str, partition: str) -> list[Association]:
    """The user's association (for this partition if there is one), the account's, and those above."""
    own = [a for a in limits.associations if a.user == user and user and a.account == account]
    fitting = [a for a in own if a.partition == partition] or [a for a in own if not a.partition]
    chain = fitting[:1]
    accounts = {a.account: a for a in limits.associations if not a.user}
    name = account
    for _ in range(_MOST_ANCESTORS):
        if name not in accounts:
            break
        chain.append(accounts[name])
        name = accounts[name].parent
    return chain


def _stated(ranks: list[Qos], mine: list[Association]) -> Iterator[tuple[str, int, str]]:
    """(TRES, count, owner) of the limit in force, for each kind of limit."""
    for kind in ("job", "user", "account", "group"):
        first: dict[str, tuple[int, str]] = {}
        for rank in ranks:
            for name, count in getattr(rank, kind).items():
                first.setdefault(name, (count, f"QOS {rank.name}"))
        if kind in {"job", "group"}:
            below = mine[:1] if kind == "job" else mine  # slurmdbd has already inherited a job's limit
            ours: dict[str, tuple[int, str]] = {}
            for one in below:
                for name, count in getattr(one, kind).items():
                    if name not in ours or count < ours[name][0]:
                        ours[name] = (count, f"account {one.account}" if not one.user else f"user {one.user}")
            first = ours | first
        for name, (count, source) in first.items():
            yield name, count, source


def _wall(ranks: list[Qos], mine: list[Association]) -> tuple[float | None, str]:
    for rank in ranks:
        if rank.wall_s is not None:
            return rank.wall_s, f"QOS {rank.name}"
    for one in mine[:1]:
        if one.wall_s is not None:
            return one.wall_s, f"account {one.account}"
    return None, ""


def within(
    pools: Iterable[Pool],
    limits: AccountingLimits,
    *,
    partitions: Iterable[Partition],
    user: str,
    account: str,
    qos: str,
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """The pools within this user's limits; and the limits that bind, as text."""
    by_name = {partition.name: partition for partition in partitions}
    bounded, binding = [], []
    for pool in pools:
        partition = by_name[pool.partition]
        bound = allowed(limits, user=user, account=account, qos=qos, partition=partition)
        smaller, texts = _within(pool, bound)
        bounded.append(smaller)
        binding += [text for text in texts if text not in binding]
    return tuple(bounded), tuple(binding)


def _within(pool: Pool, bound: Bound) -> tuple[Pool, list[str]]:
    texts = []
    gpus = [
        (bound.tres[name], bound.sources[name])
        for name in dict.fromkeys((_GPU, f"{_GPU}:{pool.gres.lower()}"))
        if name in bound.tres
    ]
    if _CORE in bound.tres:
        gpus.append((bound.tres[_CORE] * pool.node_gpus // pool.cores, bound.sources[_CORE]))
    changed = pool
    if gpus and min(gpus)[0] < pool.room(free=False):
        most, source = min(gpus)
        changed = replace(changed, max_gpus=most)
        texts.append(f"{most} GPUs of {source}")
    nodes = bound.tres.get(_NODE)
    if nodes is not None and nodes < changed.most_nodes:
        changed = replace(changed, max_nodes=nodes)
        texts.append(f"{nodes} nodes of {bound.sources[_NODE]}")
    wall_s = bound.wall_s
    if wall_s is not None and (pool.max_time_s is None or wall_s < pool.max_time_s):
        changed = replace(changed, max_time_s=wall_s)
        texts.append(f"a time limit of {format_duration(wall_s)} of {bound.sources['wall']}")
    return changed, texts
