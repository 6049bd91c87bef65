"""What accounting allows a job: limits of QOS and associations, which slurmdbd keeps and slurmctld enforces.

Slurm looks for each limit in this order, and the first place that states it counts: the partition's QOS, the
job's QOS (before it where it has OverPartQOS), the user's association, its account's and those above
(resource_limits of Slurm's documentation). Limits on a whole group bind one job too, whatever the others use.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType

from rightsizer.units import format_duration
from rightsizer.values import immutable
from rightsizer_slurm.cluster.pools import Pool
from rightsizer_slurm.cluster.slurm_cli import Slurm, settings
from rightsizer_slurm.cluster.snapshot import Partition, clock_s

__all__ = ["Association", "Bound", "Limits", "Qos", "allowed", "parse", "read", "within"]

_QOS = ("Name", "Flags", "GrpTRES", "MaxTRESPerJob", "MaxTRESPerUser", "MaxTRESPerAccount", "MaxWall")
_ASSOCIATION = (
    *("Account", "User", "Partition", "ParentName", "DefaultQOS"),
    *("GrpTRES", "MaxTRESPerJob", "MaxWall"),
)
_USER = ("User", "DefaultAccount")
_OVER_PARTITION = "OverPartQOS"
_NORMAL = "normal"
"""The QOS of a job that names none and whose association has none of its own."""
_GPU, _NODE, _CORE = "gres/gpu", "node", "cpu"
_MOST_ANCESTORS = 64

Tres = Mapping[str, int]


def _nothing() -> Tres:
    return MappingProxyType({})


@immutable
class Qos:
    """One QOS: what all its jobs, one job, one user's and one account's may have together; None: no limit."""

    name: str
    flags: tuple[str, ...] = ()
    group: Tres = field(default_factory=_nothing)
    job: Tres = field(default_factory=_nothing)
    user: Tres = field(default_factory=_nothing)
    account: Tres = field(default_factory=_nothing)
    wall_s: float | None = None


@immutable
class Association:
    """An account (`user` empty), or a user in it; perhaps for one partition only."""

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    qos: str = ""
    group: Tres = field(default_factory=_nothing)
    job: Tres = field(default_factory=_nothing)
    wall_s: float | None = None


@immutable
class Limits:
    """All that is enforced; empty: nothing. `accounts`: each user's account where a job names none."""

    qos: Mapping[str, Qos] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()
    accounts: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.qos or self.associations)


@immutable
class Bound:
    """The most that one job may have: counts by TRES, seconds; `words` say who says so, by TRES."""

    tres: Tres = field(default_factory=_nothing)
    wall_s: float | None = None
    words: Mapping[str, str] = field(default_factory=dict)


def read(slurm: Slurm) -> Limits:
    """What `sacctmgr` says; nothing without slurmdbd, or where its limits are not enforced. SlurmError."""
    config = settings(slurm)
    enforced = config.get("AccountingStorageEnforce", "").lower()
    if "slurmdbd" not in config.get("AccountingStorageType", "") or "limits" not in enforced:
        return Limits()
    ours = f"cluster={config.get('ClusterName', '')}"
    return parse(
        qos=_shown(slurm, "qos", _QOS),
        associations=_shown(slurm, "assoc", _ASSOCIATION, ours),
        users=_shown(slurm, "user", _USER),
    )


def _shown(slurm: Slurm, what: str, columns: Iterable[str], *where: str) -> str:
    chosen = f"format={','.join(columns)}"
    return slurm.run("sacctmgr", "--noheader", "--parsable2", "show", what, *where, chosen)


def parse(*, qos: str, associations: str, users: str = "") -> Limits:
    """The limits of sacctmgr's texts: a line each, columns set off by bars."""
    known = (_qos(row) for row in _rows(qos, _QOS))
    return Limits(
        qos={each.name: each for each in known},
        associations=tuple(_association(row) for row in _rows(associations, _ASSOCIATION)),
        accounts={row["User"]: row["DefaultAccount"] for row in _rows(users, _USER) if row["DefaultAccount"]},
    )


def _rows(text: str, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        words = line.split("|")
        if len(words) == len(columns):
            yield dict(zip(columns, words, strict=True))


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
    """Counts by name of cpu=64,gres/gpu:h100=8; what is no plain count (memory, in G) is left out."""
    found = re.findall(r"(?:^|,)([\w/:.-]+)=(\d+)(?=,|$)", text)
    return {name.lower(): int(count) for name, count in found}


def allowed(limits: Limits, *, user: str, account: str, qos: str, partition: Partition) -> Bound:
    """The most that a job of this user may have in this partition."""
    if not limits:
        return Bound()
    mine = _chain(limits, user, account or limits.accounts.get(user, ""), partition.name)
    own = qos or next((each.qos for each in mine if each.qos), "") or _NORMAL
    ranks = [limits.qos[name] for name in (partition.own_qos, own) if name in limits.qos]
    ranks.sort(key=lambda each: _OVER_PARTITION not in each.flags)
    found: dict[str, tuple[int, str]] = {}
    for name, count, words in _stated(ranks, mine):
        if name not in found or count < found[name][0]:
            found[name] = (count, words)
    wall_s, who = _wall(ranks, mine)
    sayers = {name: words for name, (_, words) in found.items()}
    counts = {name: count for name, (count, _) in found.items()}
    return Bound(tres=counts, wall_s=wall_s, words=sayers | ({"wall": who} if who else {}))


def _chain(limits: Limits, user: str, account: str, partition: str) -> list[Association]:
    """The user's association (that of the partition, if there is one), its account's, and those above."""
    own = [a for a in limits.associations if a.user == user and user and a.account == account]
    fitting = [a for a in own if a.partition == partition] or [a for a in own if not a.partition]
    found = fitting[:1]
    accounts = {a.account: a for a in limits.associations if not a.user}
    name = account
    for _ in range(_MOST_ANCESTORS):
        if name not in accounts:
            break
        found.append(accounts[name])
        name = accounts[name].parent
    return found


def _stated(ranks: list[Qos], mine: list[Association]) -> Iterator[tuple[str, int, str]]:
    """(TRES, count, who says so): of each kind of limit the one that counts."""
    for kind in ("job", "user", "account", "group"):
        first: dict[str, tuple[int, str]] = {}
        for each in ranks:
            for name, count in getattr(each, kind).items():
                first.setdefault(name, (count, f"QOS {each.name}"))
        if kind in {"job", "group"}:
            below = mine[:1] if kind == "job" else mine  # a job's limit is inherited already
            ours: dict[str, tuple[int, str]] = {}
            for one in below:
                for name, count in getattr(one, kind).items():
                    if name not in ours or count < ours[name][0]:
                        ours[name] = (count, f"account {one.account}" if not one.user else f"user {one.user}")
            first = ours | first
        for name, (count, words) in first.items():
            yield name, count, words


def _wall(ranks: list[Qos], mine: list[Association]) -> tuple[float | None, str]:
    for each in ranks:
        if each.wall_s is not None:
            return each.wall_s, f"QOS {each.name}"
    for one in mine[:1]:
        if one.wall_s is not None:
            return one.wall_s, f"account {one.account}"
    return None, ""


def within(
    found: Iterable[Pool],
    limits: Limits,
    *,
    partitions: Iterable[Partition],
    user: str,
    account: str,
    qos: str,
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """The pools as far as accounting lets this user have them; and, in words, what binds."""
    known = {each.name: each for each in partitions}
    pools, words = [], []
    for pool in found:
        partition = known[pool.partition]
        bound = allowed(limits, user=user, account=account, qos=qos, partition=partition)
        bounded, said = _within(pool, bound)
        pools.append(bounded)
        words += [each for each in said if each not in words]
    return tuple(pools), tuple(words)


def _within(pool: Pool, bound: Bound) -> tuple[Pool, list[str]]:
    words = []
    gpus = [
        (bound.tres[name], bound.words[name])
        for name in dict.fromkeys((_GPU, f"{_GPU}:{pool.gres.lower()}"))
        if name in bound.tres
    ]
    if _CORE in bound.tres:
        gpus.append((bound.tres[_CORE] * pool.node_gpus // pool.cores, bound.words[_CORE]))
    changed = pool
    if gpus and min(gpus)[0] < pool.room(free=False):
        most, who = min(gpus)
        changed = replace(changed, max_gpus=most)
        words.append(f"{most} GPUs of {who}")
    nodes = bound.tres.get(_NODE)
    if nodes is not None and nodes < changed.most_nodes:
        changed = replace(changed, max_nodes=nodes)
        words.append(f"{nodes} nodes of {bound.words[_NODE]}")
    wall_s = bound.wall_s
    if wall_s is not None and (pool.max_time_s is None or wall_s < pool.max_time_s):
        changed = replace(changed, max_time_s=wall_s)
        words.append(f"a time limit of {format_duration(wall_s)} of {bound.words['wall']}")
    return changed, words
