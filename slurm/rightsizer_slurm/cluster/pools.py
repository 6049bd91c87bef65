"""The GPUs of a Slurm cluster as the engine sees them: for each partition, nodes of one kind. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from rightsizer_api.stated_hardware import StatedHardware
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster import snapshot as slurm
from rightsizer_slurm.cluster.snapshot import Partition, SlurmNode

UNTYPED = "untyped"
"""The name of a gres without a type in a site's [gpus] section."""
NOT_FOR_TRAINING = "none"
"""The value in [gpus] for GPUs that are excluded from sizing, such as MIG slices."""
_CATALOGS = StatedHardware()
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


@immutable
class Pool:
    """Equal nodes of one partition. `gres` is Slurm's type of the GPUs ("" untyped), `gpu` the engine's name.

    A job takes `node_gpus` GPUs of each node (all, unless the plan sets fewer) and `cores` in proportion. Of
    the usable `nodes`, `free_nodes` have that many GPUs free; `free_gpus` is the most free on one node.
    Limits are the partition's and those of accounting; None means no limit.
    """

    partition: str
    gres: str
    gpu: str
    node_gpus: int
    cores: int
    nodes: int
    free_nodes: int
    free_gpus: int
    max_nodes: int | None = None
    max_gpus: int | None = None
    max_time_s: float | None = None
    default: bool = False

    @property
    def most_nodes(self) -> int:
        """Nodes that one job may have, free or not."""
        return self.nodes if self.max_nodes is None else min(self.nodes, self.max_nodes)

    def room(self, *, free: bool) -> int:
        """GPUs that one job may have; with `free` those free now, in whole nodes or on one node."""
        most = self.most_nodes * self.node_gpus
        if self.max_gpus is not None:
            most = min(most, self.max_gpus)
        return min(most, max(self.free_nodes * self.node_gpus, self.free_gpus)) if free else most


def pools(
    cluster: slurm.SlurmCluster,
    *,
    wanted: tuple[str, ...] = (),
    partition: str = "",
    account: str = "",
    node_gpus: int | None = None,
    names: Mapping[str, str] = _NO_NAMES,
) -> tuple[Pool, ...]:
    """The pools that a job may use: the default partition's first, then those with the most free GPUs.

    `wanted` are the engine's names of allowed GPU types (empty: any), `partition` the only one allowed,
    `account` the job's, `node_gpus` the most GPUs of a node, `names` the site's map of gres types.
    """
    _check_partition(partition, cluster.partitions)
    candidates = []
    for part in cluster.partitions:
        if not part.up or (partition and part.name not in partition.split(",")):
            continue
        if account and part.accounts and account not in part.accounts:
            continue
        members = [node for node in cluster.nodes_of(part) if node.gpus]
        for gres, size in sorted({(node.gpu, node.gpus) for node in members}):
            same = [node for node in members if (node.gpu, node.gpus) == (gres, size)]
            gpu = engine_name(gres, same, wanted=wanted, names=names)
            usable = [node for node in same if node.up]
            if gpu and usable and (not wanted or gpu in wanted):
                candidates.append(_pool(part, gres, gpu, usable, node_gpus))
    return tuple(
        sorted(candidates, key=lambda pool: (not pool.default, -pool.room(free=True), pool.partition))
    )


def clusters(
    pools: Iterable[Pool], *, free: bool, stated: StatedHardware = _CATALOGS
) -> tuple[tuple[Pool, Cluster], ...]:
    """Each pool with room, as a cluster of the engine; of equal ones the first."""
    made: dict[Cluster, Pool] = {}
    for pool in pools:
        room = pool.room(free=free)
        if room:
            cluster = stated.cluster(pool.gpu, pool.node_gpus, max_gpus=room)
            made.setdefault(cluster, pool)
    return tuple((pool, cluster) for cluster, pool in made.items())


def _check_partition(name: str, partitions: Sequence[Partition]) -> None:
    known = {one.name: one for one in partitions}
    for part in filter(None, name.split(",")):
        if part not in known:
            remedy = f"is not a partition of this cluster; there are {', '.join(sorted(known)) or 'none'}"
            raise InputError("--partition", value=part, remedy=remedy)
        if not known[part].up:
            raise InputError("--partition", value=part, remedy="is down; choose another")


def _pool(partition: Partition, gres: str, gpu: str, nodes: Sequence[SlurmNode], most: int | None) -> Pool:
    all_gpus = nodes[0].gpus
    used = min(all_gpus, most or all_gpus)
    spare = [max(0, node.gpus - node.gpus_used) for node in nodes]
    return Pool(
        partition=partition.name,
        gres=gres,
        gpu=gpu,
        node_gpus=used,
        cores=max(1, min(node.cpus for node in nodes) * used // all_gpus),
        nodes=len(nodes),
        free_nodes=sum(free >= used for free in spare),
        free_gpus=min(used, max(spare)),
        max_nodes=partition.max_nodes,
        max_time_s=partition.max_time_s,
        default=partition.default,
    )


def engine_name(
    gres: str,
    nodes: Sequence[SlurmNode],
    *,
    wanted: tuple[str, ...] = (),
    names: Mapping[str, str] = _NO_NAMES,
) -> str:
    """The engine's name of a gres type; empty if it is unknown or excluded from sizing.

    The site's map has precedence. A short name (a100) leaves the variant open: the variant that the job names
    is taken. For other gres types it is the GPU in a node's features, else the one that the job names.
    """
    mapped = names.get((gres or UNTYPED).lower())
    if mapped:
        return "" if mapped == NOT_FOR_TRAINING else mapped
    known = _catalogued(gres)
    if known:
        family = known.split("-")[0]
        return next((name for name in wanted if name.split("-")[0] == family), known)
    featured = next(filter(None, (_catalogued(f) for node in nodes for f in node.features)), "")
    return featured or (wanted[0] if len(wanted) == 1 else "")


def _catalogued(name: str) -> str:
    try:
        return lookup.gpu(name).name if name else ""
    except RightsizerError:
        return ""
