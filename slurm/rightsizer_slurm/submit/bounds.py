"""The bounds of a job: its user's options, the nodes and pools that they allow, accounting's limits. Pure.

`bounds_of` works this out once for a request. `exceeded` checks every size against the options once more.
"""

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from rightsizer_api import sizing
from rightsizer_api.sizing import ResolvedPlan
from rightsizer_engine.errors import InputError
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits, within
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.jobs import gres_gpus
from rightsizer_slurm.cluster.pools import Pool, pools
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.constraints import check_gpus, narrowed, time_left_s, with_spec, with_tasks
from rightsizer_slurm.submit.placement import AtLimit, PlacementLimits
from rightsizer_slurm.submit.protocol import SizingRequest


@immutable
class Offer:
    """The pools that the job may use: by its options (`everywhere`), and within accounting's limits.

    `binding` are the limits of accounting that bind, as text.
    """

    everywhere: tuple[Pool, ...] = ()
    allowed: tuple[Pool, ...] = ()
    binding: tuple[str, ...] = ()


@immutable
class Bounds:
    """The bounds of a request. `plan` is within its --gpus and has a GPU for each task of a node.

    `cluster` has the nodes that its options allow; `left_s` are the seconds until the job must have ended, by
    the option that says so.
    """

    request: SizingRequest
    plan: ResolvedPlan
    cluster: SlurmCluster
    site: SiteConfig
    limits: AccountingLimits
    now: dt.datetime
    left_s: Mapping[str, float] = field(default_factory=dict)

    def offer(self) -> Offer:
        """The pools. InputError if the user names a partition that is not there or is down."""
        request = self.request
        everywhere = _pools(self)
        allowed, binding = within(
            everywhere,
            self.limits,
            partitions=self.cluster.partitions,
            user=request.user,
            account=request.account,
            qos=request.qos,
        )
        return Offer(everywhere=everywhere, allowed=allowed, binding=binding)

    @property
    def all_up(self) -> "Bounds | None":
        """The bounds with every node and partition up, the returned nodes in use; None if nothing is down.

        Slurm lets a job wait for a node that is down.
        """
        cluster = self.cluster
        if all(node.up for node in cluster.nodes) and all(part.up for part in cluster.partitions):
            return None
        partitions = tuple(replace(partition, up=True) for partition in cluster.partitions)
        nodes = tuple(
            node if node.up else replace(node, up=True, gpus_used=node.gpus) for node in cluster.nodes
        )
        return replace(self, cluster=replace(cluster, partitions=partitions, nodes=nodes))


def bounds_of(
    plan: ResolvedPlan,
    request: SizingRequest,
    *,
    cluster: SlurmCluster,
    site: SiteConfig,
    limits: AccountingLimits,
    now: dt.datetime,
) -> Bounds:
    """The bounds of a request. NotUnderstoodError and InputError name the option."""
    check_gpus(request)
    allowed = narrowed(cluster, request)
    left_s = time_left_s(cluster, request, now)
    return Bounds(
        request=request,
        plan=with_tasks(plan, request),
        cluster=allowed,
        site=site,
        limits=limits,
        now=now,
        left_s=left_s,
    )


def within_gpus(plan: ResolvedPlan, request: SizingRequest) -> ResolvedPlan:
    """The plan within the GPUs that the user's own --gpus allows."""
    _, most = gres_gpus(request.tres_per_job)
    resources = plan.plan.spec.resources
    if not most or (resources.max_gpus is not None and resources.max_gpus <= most):
        return plan
    if resources.min_gpus > most or (resources.gpus or 0) > most:
        least = max(resources.min_gpus, resources.gpus or 0)
        raise InputError("--gpus", value=most, remedy=f"is less than the {least} that the plan requires")
    return with_spec(plan, resources=resources.model_copy(update={"max_gpus": most}))


def without_size(request: SizingRequest) -> SizingRequest:
    """The request of a job of `rightsizer sbatch` as if it had no size, to size its plan again."""
    kept = ("comment", "mode", "uid", "user", "account", "qos", "partition", "reservation")
    return SizingRequest(**{name: getattr(request, name) for name in kept}, requeues=1)


def placement_limits(request: SizingRequest, left_s: Iterable[float]) -> PlacementLimits:
    """The request's limits; `left_s` are the times until a --deadline or the end of a reservation."""
    ends_s = min((60.0 * (left // 60.0) for left in left_s), default=None)
    if ends_s is not None and 60.0 * (request.time_min or 0) > ends_s:
        left = format_duration(max(0.0, ends_s))
        remedy = f"minutes are more than the {left} until the job must have ended"
        raise InputError("--time-min", value=request.time_min, remedy=remedy)
    return PlacementLimits(
        nodes=request.most_nodes,
        time_s=60.0 * request.time_limit if request.time_limit else None,
        ends_s=ends_s,
        at_limit=AtLimit.REQUEUED if request.requeues else AtLimit.FITS,
    )


def exceeded(size: Mapping[str, int | str], request: SizingRequest) -> str:
    """The option that the fields of a size exceed; empty if none."""
    nodes, node_gpus = int(size["max_nodes"]), gres_gpus(str(size["gres"]))[1]
    most_gpus = gres_gpus(request.tres_per_job)[1]
    tasks = int(size.get("num_tasks", 0)) if request.num_tasks else 0
    bounds = {
        "--nodes": (nodes, request.most_nodes),
        "--gpus-per-node": (node_gpus, gres_gpus(request.gres)[1]),
        "--gpus": (nodes * node_gpus, most_gpus),
        "--ntasks": (tasks, request.num_tasks),
        "--time": (int(size.get("time_limit", 0)), request.time_limit),
    }
    wrong = (option for option, (placed, most) in bounds.items() if placed > (most or math.inf))
    partition = str(size.get("partition", ""))
    if request.partition and partition not in request.partition.split(","):
        return "--partition"
    return next(wrong, "")


def _pools(bounds: Bounds) -> tuple[Pool, ...]:
    """The pools that the job may use, by its options and the site's modes."""
    request, plan = bounds.request, bounds.plan.plan
    _, node_gpus = gres_gpus(request.gres)
    tasks = request.node_tasks or 1  # a user who says how many tasks a node runs gets a GPU for each
    candidates = pools(
        bounds.cluster,
        names=bounds.site.gpus,
        wanted=sizing.gpu_types(plan),
        partition=request.partition,
        account=request.account,
        node_gpus=node_gpus or plan.spec.resources.gpus_per_node or (tasks if tasks > 1 else None),
    )
    kind, mode_of = request.gpu_type, bounds.site.mode_of
    return tuple(
        pool
        for pool in candidates
        if (not kind or pool.gres == kind) and (request.partition or mode_of(pool.partition) != "off")
    )
