"""Input and output of the search: a Request in, a Plan or NoPlan out. Values only."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.estimate.evidence import Calibration
from rightsizer_engine.estimate.goodput import Reliability
from rightsizer_engine.values import immutable


def _nothing() -> Mapping[str, int]:
    return MappingProxyType({})


class Objective(StrEnum):
    """The objective within the limits."""

    GPUS = "gpus"
    COST = "cost"
    TIME = "time"


class Binding:
    """The binding constraint: what a NoPlan violates, or what prevents a smaller Plan."""

    DEADLINE = "deadline"
    MEMORY = "memory"
    BUDGET = "budget"
    MAX_GPUS = "maxGPUs"
    MIN_GPUS = "minGPUs"
    BATCH = "globalBatch"
    FRAMEWORK = "framework"
    PRECISION = "precision"
    LAYOUT = "layout"
    COST = "cost"


@immutable
class Request:
    """A sizing request: train this workload of this model on one of these clusters, within the limits.

    `objective` is what is minimised: the GPUs (without a deadline: of the sizes at a fair cost), the expected
    cost, or the time. `deadline_s` is from now. `confidence` is the probability with which the
    deadline must hold. `framework_assumed`: the user named no framework. `stacks`: the frameworks of which
    the plan takes the best as `framework`; empty: no choice. `notes` say what else was assumed, and why.
    `max_usd` limits the expected cost. `max_gpus` limits every cluster, spares included. `spare_nodes` None:
    no spares, and the reasons recommend a number. `pinned` fixes layout fields by their names in `Layout`
    (such as {"tp": 8}). `gpu_counts`, if not empty, are the only GPU counts searched. `may_idle`: of a single
    count some GPUs may idle, if no layout on all of them is as fast. `batch_tolerance` is the accepted
    relative change of the global batch so that it divides over the data-parallel ranks. `elastic`: the job
    can be resized while it runs, so a plan opens at the likely size and keeps a reserve. It may grow to
    `grow_to` GPUs (None: to `max_gpus`). `calibration` comes from the user's measured runs.
    """

    architecture: Architecture
    workload: Workload
    framework: Framework
    clusters: tuple[Cluster, ...]
    framework_assumed: bool = False
    stacks: tuple[Framework, ...] = ()
    notes: tuple[str, ...] = ()
    objective: Objective = Objective.GPUS
    deadline_s: float | None = None
    confidence: float = 0.9
    max_usd: float | None = None
    min_gpus: int = 1
    max_gpus: int | None = None
    spare_nodes: int | None = None
    pinned: Mapping[str, int] = field(default_factory=_nothing)
    gpu_counts: tuple[int, ...] = ()
    may_idle: bool = False
    batch_tolerance: float = 0.05
    elastic: bool = False
    grow_to: int | None = None
    reliability: Reliability = field(default_factory=Reliability)
    calibration: Calibration | None = None


_SLOWER_STEPS = ("stragglers", "slower_stack")
"""Losses that make steps slower than predicted."""


@immutable
class Option:
    """One layout on one cluster, with all predictions.

    `gpus` train on `nodes` nodes; `spare_nodes` are idle and paid for. `finish_s` is the median wall time of
    the whole run. It includes start-up, reading weights, failures, checkpoints, stragglers, unplanned losses
    and the slowdown of an unnamed stack. `finish_lo_s` and `finish_hi_s` are its 80 % interval,
    `finish_at_confidence_s` its quantile at the request's confidence, all of one distribution
    (`uncertainty.quantile`) without resizes. `goodput` is the productive fraction of wall time,
    `lost_by_cause` the rest. `global_batch_sequences` is the batch after rounding. `cost_usd` is None if the
    cluster has no price. `host_bytes_per_node` of host memory hold the states that are offloaded. `sigma` is
    the standard deviation of ln(true / predicted step time). `step_correction` and `memory_correction` come
    from measured runs and are already applied to every figure.
    """

    cluster: Cluster
    layout: Layout
    gpus: int
    nodes: int
    spare_nodes: int
    global_batch_sequences: int
    step_s: float
    step_by_cause_s: Mapping[str, float]
    memory_by_cause_bytes: Mapping[str, float]
    allocated_bytes: float
    device_bytes: float
    memory_limit_bytes: float
    tokens_per_s: float
    mfu: float
    sigma: float
    goodput: float
    lost_by_cause: Mapping[str, float]
    checkpoint_interval_s: float
    finish_s: float
    finish_lo_s: float
    finish_hi_s: float
    finish_at_confidence_s: float
    cost_usd: float | None
    energy_kwh: float
    host_bytes_per_node: float = 0.0
    step_correction: float = 1.0
    memory_correction: float = 1.0

    @property
    def stepping(self) -> float:
        """The fraction of a started run's time spent in steps, slower-than-predicted steps included."""
        steps = self.goodput + sum(self.lost_by_cause.get(cause, 0.0) for cause in _SLOWER_STEPS)
        return steps / (1.0 - self.lost_by_cause.get("start_up", 0.0))


@immutable
class CurvePoint:
    """The best option on one GPU count: its finish with the 80 % interval, and expected cost."""

    cluster: Cluster
    gpus: int
    finish_s: float
    finish_lo_s: float
    finish_hi_s: float
    finish_at_confidence_s: float
    cost_usd: float | None


@immutable
class Growth:
    """The policy takes `gpus` from this ratio of measured over predicted step time (`step_ratio`) on."""

    step_ratio: float
    gpus: int


@immutable
class Staging:
    """Two-stage sizing: open with the plan's option, measure for `look_s` of training, then resize.

    `reserve_gpus`: the most GPUs that the policy takes. With `likely_probability` it never takes more than
    `likely_gpus`. `probability`: that the deadline holds under the policy. `static_gpus`: the fewest GPUs
    that would meet the deadline at the same confidence without resizes, None if no allowed count does.
    `capped`: with more GPUs allowed the reserve would be larger.
    `policy`: the size for each measured rate at the first look, in ascending order.
    """

    look_s: float
    reserve_gpus: int
    likely_gpus: int
    likely_probability: float
    probability: float
    static_gpus: int | None
    policy: tuple[Growth, ...]
    capped: bool = False


@immutable
class CappedOpening:
    """An opening that the GPUs allowed rule out: with `reserve_gpus` it holds only with `probability`."""

    gpus: int
    reserve_gpus: int
    probability: float


@immutable
class Plan:
    """The chosen `option`, its `reasons` as sentences, the `binding` constraint and the runners-up.

    `curve` is cost against time over GPU counts, for plots: the chosen GPU type first, then the others.
    `layouts_evaluated` counts the rows priced for the decision.
    `staging`: how an elastic job goes on from `option`, its opening size; None: the size is fixed.
    """

    request: Request
    option: Option
    runners_up: tuple[Option, ...]
    reasons: tuple[str, ...]
    binding: str
    curve: tuple[CurvePoint, ...]
    layouts_evaluated: int
    staging: Staging | None = None


@immutable
class NoPlan:
    """No layout meets the request: the `binding` constraint, the `reason` as a sentence, the nearest options.

    `needs_gpus` is the fewest GPUs that would meet the request, if more GPUs would help.
    """

    request: Request
    binding: str
    reason: str
    nearest: tuple[Option, ...] = ()
    needs_gpus: int | None = None
    layouts_evaluated: int = 0
