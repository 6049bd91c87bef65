"""Sizes a plan, or the rest of a training, to this machine."""

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rightsizer_api import sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Option, Plan, Request, Staging
from rightsizer_engine.values import immutable
from rightsizer_launch.running import calibration
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_local.machine import Machine

_START_S = 20.0
"""Start-up on this machine until one is measured: no queue and no image, but torch's import. A guess."""


@immutable
class Sized:
    """The engine's response, and the option of it that runs."""

    response: Plan | NoPlan
    option: Option
    workload: Workload
    deadline_s: float | None

    @property
    def staging(self) -> Staging | None:
        """The looks and the reserve of a job with an opening size."""
        return self.response.staging if isinstance(self.response, Plan) else None


def sized_here(
    plan: TrainingPlan,
    here: Machine,
    *,
    workers: int | None = None,
    attempts: Sequence[Mapping[str, Any]] = (),
    totals: RunTotals | None = None,
) -> Sized:
    """Size the rest of the training to this machine, or to `workers`; the batch of earlier attempts stays."""
    totals, now = totals or RunTotals(), time.time()
    first = float(attempts[0]["startedAt"]) if attempts else now
    began = dt.datetime.fromtimestamp(first, dt.UTC)
    request = sizing.resolve(plan).request(now=began, clusters=here.clusters)
    workload = request.workload
    if attempts:
        workload = replace(workload, global_batch_sequences=int(attempts[0]["globalBatchSequences"]))
    left = None if request.deadline_s is None else max(1.0, request.deadline_s - (now - first))
    tokens = max(1.0, workload.tokens - totals.tokens)
    request = replace(
        request,
        calibration=calibration.load(),
        workload=replace(workload, tokens=tokens),
        deadline_s=left,
        gpu_counts=(workers,) if workers else request.gpu_counts,
        min_gpus=1 if workers else request.min_gpus,
        max_gpus=None if workers else request.max_gpus,
        batch_tolerance=0.0 if attempts else request.batch_tolerance,
        spare_nodes=0,
        reliability=replace(request.reliability, start_s=_START_S),
    )
    request = replace(request, clusters=_eligible(request))
    response = size(request)
    option = _option(response, request)
    workload = replace(workload, global_batch_sequences=option.global_batch_sequences)
    return Sized(response=response, option=option, workload=workload, deadline_s=left)


def _eligible(request: Request) -> tuple[Cluster, ...]:
    """The clusters that may be used in full, so that a refusal names no others."""
    if len(request.clusters) == 1:
        return request.clusters
    least, most = request.min_gpus, request.max_gpus or request.clusters[-1].max_gpus
    fitting = [cluster for cluster in request.clusters if least <= cluster.max_gpus <= most]
    if request.gpu_counts:
        fitting = [cluster for cluster in fitting if cluster.max_gpus in request.gpu_counts]
    return tuple(fitting) or request.clusters[-1:]


def _option(response: Plan | NoPlan, request: Request) -> Option:
    """The plan's option; without a plan the nearest that this machine can run."""
    if isinstance(response, Plan):
        return response.option
    most = max(cluster.max_gpus for cluster in request.clusters)
    fitting = [option for option in response.nearest if option.gpus <= most]
    if not fitting:
        raise InputError(
            "plan", value=response.binding, remedy=f"cannot run on this machine: {response.reason}"
        )
    return fitting[0]
