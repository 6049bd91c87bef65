"""Sizes a plan on a Slurm cluster: partition, nodes and time limit, or why no size fits. Pure."""

import datetime as dt
import enum
import math
from collections.abc import Sequence
from dataclasses import replace

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.sizing import ResolvedPlan
from rightsizer_api.stated_hardware import stated_hardware
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.evidence import Calibration
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.reasons import opening_text
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Option, Plan, Request
from rightsizer_engine.units import format_duration, parse_duration_s
from rightsizer_engine.values import immutable
from rightsizer_launch.worker_spec import in_place_sizes, is_data_parallel
from rightsizer_slurm.cluster.pools import Pool, clusters

_MARGIN = 1.15
"""Time limit / expected finish at the plan's confidence. A choice: a short limit costs a requeue."""
_START_S = 900.0
"""Added to every time limit, for the start and the last checkpoint. A choice."""
_LONGEST_S = 10 * 366 * 86_400.0
"""Of a job without any limit: Slurm counts minutes and seconds in 32 bits, which wrap around. A choice."""


class AtLimit(enum.Enum):
    """The fate of a training that outlasts its time limit: the words for the user."""

    SAVED = ", saved and requeued at each time limit"
    """By the script of `rightsizer sbatch`."""
    REQUEUED = ", requeued by its script at each time limit"
    """The user's script calls `scontrol requeue`."""
    ENDS = ", which ends it before the training: submit it again to go on from its checkpoint"
    FITS = ""
    """It may not outlast it."""


@immutable
class PlacementLimits:
    """The user's own limits beside the plan. No placement exceeds them.

    `at_limit`: what the job does at `time_s` or at the partition's limit. Nothing goes on after `ends_s`.
    """

    nodes: int | None = None
    time_s: float | None = None
    ends_s: float | None = None
    at_limit: AtLimit = AtLimit.FITS


class OutlastsError(InputError):
    """The training would outlast its time limit, and could not go on after it."""


@immutable
class Placement:
    """A sized job: `nodes` nodes of `pool`, each with `node_gpus` GPUs and `cores` cores, for `time_s`.

    `sized` is the engine's choice for its `plan`.
    `at_limit`: FITS, or what the job does because the training outlasts the time limit. `waits`: fewer GPUs
    are free now than the job needs.
    """

    plan: TrainingPlan
    sized: Plan
    pool: Pool
    nodes: int
    node_gpus: int
    cores: int
    time_s: float
    at_limit: AtLimit
    waits: bool

    @property
    def option(self) -> Option:
        """The engine's choice."""
        return self.sized.option

    @property
    def gres(self) -> str:
        """The GPUs of a node as Slurm's --gres takes them."""
        return f"gpu:{self.pool.gres}:{self.node_gpus}" if self.pool.gres else f"gpu:{self.node_gpus}"

    @property
    def summary(self) -> str:
        """The size and its reason in one line; for an opening size also how the job goes on."""
        finish, staging = verdict(self.sized), self.sized.staging
        opening = f"; {opening_text(self.option, staging)}" if staging else ""
        queue = "; waits until they are free" if self.waits else ""
        kind = f"{self.pool.gres or 'gpu'}"
        where = f"{self.nodes} x {self.node_gpus} {kind} in {self.pool.partition}"
        return f"{where} for {format_duration(self.time_s)}{self.at_limit.value}{queue}: {finish}{opening}"


def fit(
    plan: ResolvedPlan,
    candidates: Sequence[Pool],
    *,
    have: str,
    bounds: PlacementLimits | None = None,
    now: dt.datetime | None = None,
    calibration: Calibration | None = None,
    resizable: bool = False,
) -> Placement | NoPlan:
    """Size a plan on the free nodes, else on all nodes; `have` describes them.

    `resizable`: the job is one of `rightsizer sbatch`, so it may open at its likely size. InputError: no
    partition can run it.
    """
    bounds = bounds or PlacementLimits()
    stated = stated_hardware(plan.plan)
    resizable = resizable and len(in_place_sizes(plan.plan)) > 0
    bounded = [_bounded(pool, bounds) for pool in candidates]
    refused: NoPlan | None = None
    tried: tuple[tuple[Pool, Cluster], ...] = ()
    for free in (True, False):
        offered = clusters(bounded, free=free, stated=stated)
        if not offered or offered == tried:
            continue
        tried = offered
        request = plan.request(
            now=now, clusters=tuple(cluster for _, cluster in offered), resizable=resizable
        )
        sized = _sized(replace(request, spare_nodes=0, calibration=calibration))
        if isinstance(sized, Plan):
            chosen = sized.option.cluster
            pool = next(pool for pool, cluster in offered if cluster == chosen)
            return _placement(plan.plan, sized, pool, bounds, waits=not free)
        refused = sized
    if refused is None:
        kinds = ", ".join(plan.plan.spec.resources.gpu_types or ()) or "GPUs that the engine knows"
        raise InputError("cluster", value=have, remedy=f"has no partition for this job with {kinds}")
    return refused


def _sized(request: Request) -> Plan | NoPlan:
    """The plan; an opening size only for a layout that the job can resize."""
    sized = size(request, compared=False)
    if isinstance(sized, Plan) and sized.staging and not is_data_parallel(sized.option.layout):
        return size(replace(request, elastic=False), compared=False)
    return sized


def _placement(
    plan: TrainingPlan, sized: Plan, pool: Pool, bounds: PlacementLimits, *, waits: bool
) -> Placement:
    """The placement: the nodes that the engine priced, whose number the limits bound."""
    option = sized.option
    node_gpus = option.layout.gpus // option.nodes
    needed_s = math.ceil((_MARGIN * option.finish_at_confidence_s + _START_S) / 60.0) * 60.0
    most_s = limit_s(pool, bounds)
    longest = plan.spec.active_deadline
    if longest is not None:
        needed_s = min(needed_s, math.ceil((parse_duration_s(longest) + _START_S) / 60.0) * 60.0)
    at_limit = AtLimit.FITS if needed_s <= most_s else bounds.at_limit
    if needed_s > most_s:
        _check_goes_on(plan, bounds, needed_s=needed_s, most_s=most_s)
    return Placement(
        plan=plan,
        sized=sized,
        pool=pool,
        nodes=option.nodes,
        node_gpus=node_gpus,
        cores=max(1, pool.cores * node_gpus // pool.node_gpus),
        time_s=min(needed_s, most_s),
        at_limit=at_limit,
        waits=waits,
    )


def _check_goes_on(plan: TrainingPlan, bounds: PlacementLimits, *, needed_s: float, most_s: float) -> None:
    """OutlastsError unless the training goes on after its time limit."""
    short = f"the training needs {format_duration(needed_s)} and the time limit is {format_duration(most_s)}"
    if plan.spec.launch.checkpoint is None:
        remedy = f"{short}: name a checkpoint directory, so that it can go on after a requeue"
        raise OutlastsError("spec.launch.checkpoint", value=None, remedy=remedy)
    if bounds.at_limit is AtLimit.SAVED and plan.spec.active_deadline is not None:
        remedy = f"{short}: a job with an activeDeadline is not requeued; leave it out, or shorten it"
        raise OutlastsError("spec.activeDeadline", value=plan.spec.active_deadline, remedy=remedy)
    if bounds.at_limit is AtLimit.FITS or (bounds.ends_s or math.inf) <= most_s:
        raise OutlastsError("--time", value=None, remedy=short)


def limit_s(pool: Pool, bounds: PlacementLimits) -> float:
    """The longest that a job may run in a pool."""
    stated = (pool.max_time_s, bounds.time_s, bounds.ends_s)
    return min(_LONGEST_S, *(each or math.inf for each in stated))


def finish_limit_s(time_limit_s: float) -> float:
    """The latest finish, at the plan's confidence, that fits a time limit."""
    return (time_limit_s - 60.0 - _START_S) / _MARGIN  # limits are rounded up to a minute


def _bounded(pool: Pool, bounds: PlacementLimits) -> Pool:
    if bounds.nodes is None:
        return pool
    return replace(pool, max_nodes=min(bounds.nodes, pool.max_nodes or bounds.nodes))
