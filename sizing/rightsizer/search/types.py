"""What the search is asked and what it answers: Request in, Plan or NoPlan out. Values only."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from rightsizer.domain.architecture import Architecture
from rightsizer.domain.framework import Framework
from rightsizer.domain.hardware import Cluster
from rightsizer.domain.layout import Layout
from rightsizer.domain.workload import Workload
from rightsizer.estimate.correction import Calibration
from rightsizer.estimate.goodput import Reliability
from rightsizer.values import immutable

__all__ = ["Binding", "CurvePoint", "NoPlan", "Option", "Plan", "Request"]


def _nothing() -> Mapping[str, int]:
    return MappingProxyType({})


class Binding:
    """The constraint that decides: what a NoPlan breaks, or what keeps a Plan from being smaller."""

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
    """One question: these tokens of this model, on one of these clusters, by then, at that confidence.

    `deadline_s` is from now; None asks for the cheapest plan that is not needlessly slow. `confidence` is the
    probability with which the deadline must hold. `framework_assumed` says that nobody named the framework.
    `max_usd` bounds the expected cost. `max_gpus` bounds every cluster further than its own size; spares
    count. `spare_nodes` None holds none; the reasons then say how many would be wise. `pinned` fixes layout
    fields by their names in `Layout` (such as {"tp": 8}). `gpu_counts`, if not empty, are the only numbers of
    GPUs looked at. `batch_tolerance` is the relative change of the global batch that is acceptable so that it
    divides over the data-parallel ranks. `calibration` is what one's own measured runs say.
    """

    architecture: Architecture
    workload: Workload
    framework: Framework
    clusters: tuple[Cluster, ...]
    framework_assumed: bool = False
    deadline_s: float | None = None
    confidence: float = 0.9
    max_usd: float | None = None
    min_gpus: int = 1
    max_gpus: int | None = None
    spare_nodes: int | None = None
    pinned: Mapping[str, int] = field(default_factory=_nothing)
    gpu_counts: tuple[int, ...] = ()
    batch_tolerance: float = 0.05
    reliability: Reliability = field(default_factory=Reliability)
    calibration: Calibration | None = None


_SLOWER_STEPS = ("stragglers", "slower_stack")
"""Losses that are time in steps, beyond what a step is predicted to take."""


@immutable
class Option:
    """One layout on one cluster, with everything predicted for it.

    `gpus` train, on `nodes` nodes; `spare_nodes` wait beside them and are paid for. `finish_s` is the median
    wall time of the whole run, losses to failures, checkpoints, stragglers, the unplanned and a stack that
    nobody named included; `finish_lo_s` and `finish_hi_s` are the 80 % interval, with what whole runs
    scatter; `finish_at_confidence_s` is, at the request's confidence, the quantile of the engine's own error
    (how a run is led is not in it). `goodput` is the productive fraction of wall time, `lost_by_cause` the
    rest. `global_batch_sequences` is what this layout really steps with. `cost_usd` is None when the cluster
    has no price. `sigma` is the standard deviation of ln(true / predicted step time). Where measured runs
    corrected the engine's own prediction, by `step_correction` and `memory_correction`, every figure has it
    applied.
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
    step_correction: float = 1.0
    memory_correction: float = 1.0

    @property
    def stepping(self) -> float:
        """The fraction of wall time that goes by in steps, what makes them slower than predicted included."""
        return self.goodput + sum(self.lost_by_cause.get(cause, 0.0) for cause in _SLOWER_STEPS)


@immutable
class CurvePoint:
    """The best that a number of GPUs can do: finish at the asked confidence, expected cost."""

    cluster: Cluster
    gpus: int
    finish_s: float
    finish_at_confidence_s: float
    cost_usd: float | None


@immutable
class Plan:
    """The answer: `option`, why (`reasons`, plain sentences), what binds (a `Binding`), and what came next.

    `curve` is cost against time over GPU counts, for plots. `layouts_evaluated` counts the rows priced.
    """

    request: Request
    option: Option
    runners_up: tuple[Option, ...]
    reasons: tuple[str, ...]
    binding: str
    curve: tuple[CurvePoint, ...]
    layouts_evaluated: int


@immutable
class NoPlan:
    """No layout meets the request: the `binding` constraint, the `reason` in words, and the nearest options.

    `needs_gpus` is the fewest GPUs that would do were there more of them, where that is what is missing.
    """

    request: Request
    binding: str
    reason: str
    nearest: tuple[Option, ...] = ()
    needs_gpus: int | None = None
    layouts_evaluated: int = 0
