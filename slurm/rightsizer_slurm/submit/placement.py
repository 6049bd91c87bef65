"""A plan sized to a Slurm cluster: which partition, how many nodes, for how long; or why not. Pure."""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import replace

from rightsizer.domain.hardware import Cluster
from rightsizer.domain.layout import Layout
from rightsizer.domain.workload import Workload
from rightsizer.errors import InputError
from rightsizer.estimate.correction import Calibration
from rightsizer.search.explain import verdict
from rightsizer.search.plan import plan as size
from rightsizer.search.types import NoPlan, Option, Plan, Request
from rightsizer.units import format_duration
from rightsizer.values import immutable
from rightsizer_api import sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_slurm.cluster.pools import Pool, clusters

__all__ = ["Asked", "Fitted", "fit", "node_gpus"]

_MARGIN = 1.15
"""The time limit over the finish at the plan's confidence: a limit too short costs a requeue. A choice."""
_START_S = 900.0
"""Queue's end to first step, and the last checkpoint: added to every time limit. A choice."""


@immutable
class Asked:
    """What the user fixed beside the plan; it bounds the answer and is never exceeded."""

    nodes: int | None = None
    time_s: float | None = None


@immutable
class Fitted:
    """A size for Slurm: `nodes` of `node_gpus` GPUs and `cores` each in `pool`, for `time_s`.

    `chained` says that the time limit ends before the training: the job saves, and is requeued. `waits` says
    that fewer GPUs are free now than it needs.
    """

    plan: TrainingPlan
    answer: Plan
    workload: Workload
    pool: Pool
    nodes: int
    node_gpus: int
    cores: int
    time_s: float
    chained: bool
    waits: bool

    @property
    def option(self) -> Option:
        """What the engine chose."""
        return self.answer.option

    @property
    def words(self) -> str:
        """What and why, in one line."""
        finish = verdict(self.answer)
        until = ", saved and requeued at each time limit" if self.chained else ""
        queue = "; waits until they are free" if self.waits else ""
        kind = f"{self.pool.gres or 'gpu'}"
        where = f"{self.nodes} x {self.node_gpus} {kind} in {self.pool.partition}"
        return f"{where} for {format_duration(self.time_s)}{until}{queue}: {finish}"


def fit(
    plan: TrainingPlan,
    found: Sequence[Pool],
    *,
    have: str,
    asked: Asked | None = None,
    now: dt.datetime | None = None,
    calibration: Calibration | None = None,
) -> Fitted | NoPlan:
    """Size a plan on what is free, else on what there is; `have` says that in words.

    InputError says what no partition here can do.
    """
    asked = asked or Asked()
    inter_bytes_per_s, price = sizing.inter_node_bytes_per_s(plan), sizing.price_usd_per_gpu_h(plan)
    resolved = sizing.resolve(plan)
    bounded = [_bounded(pool, asked) for pool in found]
    refused: NoPlan | None = None
    tried: tuple[tuple[Pool, Cluster], ...] = ()
    for free in (True, False):
        offered = clusters(bounded, free=free, inter_bytes_per_s=inter_bytes_per_s, price=price)
        if not offered or offered == tried:
            continue
        tried = offered
        request = resolved.request(now=now, clusters=tuple(cluster for _, cluster in offered))
        answer = size(replace(request, spare_nodes=0, calibration=calibration), compared=False)
        if isinstance(answer, Plan):
            chosen = answer.option.cluster
            pool = next(pool for pool, cluster in offered if cluster == chosen)
            return _fitted(plan, answer, pool, asked, waits=not free)
        refused = answer
    if refused is None:
        kinds = ", ".join(plan.spec.resources.gpu_types or ()) or "GPUs that the engine knows"
        raise InputError("cluster", value=have, remedy=f"has no partition for this job with {kinds}")
    return refused


def node_gpus(layout: Layout, of_node: int) -> int:
    """GPUs on each node: as many as divide the job, tensor-parallel ranks kept together."""
    fits = [n for n in range(1, min(of_node, layout.gpus) + 1) if layout.gpus % n == 0]
    together = [n for n in fits if n % layout.tp == 0]
    return max(together or fits)


def _fitted(plan: TrainingPlan, answer: Plan, pool: Pool, asked: Asked, *, waits: bool) -> Fitted:
    option = answer.option
    each = node_gpus(option.layout, pool.node_gpus)
    nodes = option.layout.gpus // each
    needed_s = math.ceil((_MARGIN * option.finish_at_confidence_s + _START_S) / 60.0) * 60.0
    most_s = min(pool.max_time_s or math.inf, asked.time_s or math.inf)
    if needed_s > most_s and plan.spec.launch.checkpoint is None:
        remedy = (
            f"the training needs {format_duration(needed_s)} and the time limit is {format_duration(most_s)}:"
            " name where it saves, so that it can go on after a requeue"
        )
        raise InputError("spec.launch.checkpoint", value=None, remedy=remedy)
    return Fitted(
        plan=plan,
        answer=answer,
        workload=_workload(answer.request, option),
        pool=pool,
        nodes=nodes,
        node_gpus=each,
        cores=max(1, pool.cores * each // pool.node_gpus),
        time_s=min(needed_s, most_s),
        chained=needed_s > most_s,
        waits=waits,
    )


def _workload(request: Request, option: Option) -> Workload:
    return replace(request.workload, global_batch_sequences=option.global_batch_sequences)


def _bounded(pool: Pool, asked: Asked) -> Pool:
    if asked.nodes is None:
        return pool
    return replace(pool, max_nodes=min(asked.nodes, pool.max_nodes or asked.nodes))
