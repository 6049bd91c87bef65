"""Peak bytes per GPU, by cause, on the fullest pipeline stage.

A stage's peak is the largest of three phases: the loss (all activations in flight and the logits), the
backward of a layer (activations and that layer's working set), and the optimizer step (its temporaries;
activations are freed). States and buffers live through all three. Allocated, reserved and device bytes
differ: the allocator caches unused blocks, and the CUDA context and communicators are outside it.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.estimate.memory.per_stage import StageMemory, stages
from rightsizer_engine.estimate.memory.stage import ends_lighter, in_flight
from rightsizer_engine.estimate.memory.states import Adapters, StateRates, States, state_rates, states
from rightsizer_engine.estimate.parameters import Parameters, load_memory
from rightsizer_engine.estimate.uncertainty import quantile
from rightsizer_engine.values import immutable

MEMORY_LIMIT = 0.96
"""The largest share of device memory that a plan may use. Driver and fragmentation need the rest."""

FIT_CONFIDENCE = 0.8
"""The probability with which a plan must fit. 867 of 890 published runs, which all ran, fit by it; none of
these took more than MEMORY_LIMIT of its GPU. A job that does not fit fails in its first minutes."""

_ELASTIC_LIMIT = 0.95
"""Share of device memory up to which the allocator caches unused blocks. Above it, it frees them."""


class Verdict(enum.StrEnum):
    """Whether a layout fits: certain enough to plan with, too close to the limit, or not at all."""

    FITS = "fits"
    TIGHT = "may not fit"
    DOES_NOT_FIT = "does NOT fit"


@immutable
class Memory:
    """Bytes by cause; every total is a sum of causes."""

    weights_bytes: Array
    gradients_bytes: Array
    optimizer_bytes: Array
    activations_bytes: Array
    working_bytes: Array
    loss_bytes: Array
    unsharded_bytes: Array
    buckets_bytes: Array
    temporaries_bytes: Array
    workspaces_bytes: Array
    slack_bytes: Array
    context_bytes: Array

    @property
    def allocated_bytes(self) -> Array:
        """Bytes allocated by the framework's allocator (torch max_memory_allocated)."""
        names = [f.name for f in fields(self) if f.name not in {"slack_bytes", "context_bytes"}]
        return np.asarray(sum(getattr(self, name) for name in names))

    @property
    def reserved_bytes(self) -> Array:
        """Bytes that the allocator has reserved on the device (torch max_memory_reserved)."""
        return np.asarray(self.allocated_bytes + self.slack_bytes)

    @property
    def device_bytes(self) -> Array:
        """The device's used bytes (nvidia-smi): with the context and the communicators."""
        return np.asarray(self.reserved_bytes + self.context_bytes)


@immutable
class Peak:
    """The totals of a Memory: allocated, cached by the allocator, and outside the allocator."""

    allocated_bytes: Array
    slack_bytes: Array
    context_bytes: Array

    @property
    def device_bytes(self) -> Array:
        """The device's used bytes (nvidia-smi)."""
        return np.asarray(self.allocated_bytes + self.slack_bytes + self.context_bytes)


Total = TypeVar("Total", Memory, Peak)


def estimate(cases: Cases, parameters: Parameters | None = None) -> Memory:
    """Peak bytes by cause on the fullest pipeline stage of every case."""
    p = parameters or load_memory()
    cases = with_float_counts(cases)
    return fullest_stage(cases, p, stages(cases, p, candidates(cases)))


def candidates(cases: Cases) -> list[Array]:
    """Indices of the stages that may be the fullest.

    The first, the last, and the second if the first holds fewer layers or dense ones.
    """
    pipeline = np.asarray(cases.layout.pp)
    indices = [np.zeros_like(pipeline)]
    if np.any(pipeline > 1):
        indices.append(pipeline - 1)
    if np.any((pipeline > 2) & ends_lighter(cases)):
        indices.append(np.minimum(1, pipeline - 1))
    return indices


def fullest_stage(cases: Cases, p: Parameters, stages_: Sequence[StageMemory]) -> Memory:
    """Peak bytes by cause on the fullest of some stages."""
    per, context = state_rates(cases), _context(cases, p)
    return _fullest(_stage_memory(cases, p, stage, per, context) for stage in stages_)


def peak(cases: Cases, p: Parameters, stages_: Sequence[StageMemory]) -> Peak:
    """The totals of `fullest_stage` (up to rounding) in a third of the time. The search uses it."""
    per, context = state_rates(cases), _context(cases, p)
    return _fullest(_stage_peak(cases, p, stage, per, context) for stage in stages_)


def fits(memory: Memory | Peak, gpu_memory_bytes: Array, sigma: Array | float = 0.0) -> Array:
    """Whether the peak stays within MEMORY_LIMIT with FIT_CONFIDENCE.

    Cached blocks do not count against the margin, since the allocator frees them first.
    """
    limit = MEMORY_LIMIT * gpu_memory_bytes
    needed = memory.allocated_bytes * np.exp(quantile(FIT_CONFIDENCE) * sigma) + memory.context_bytes
    return np.asarray((needed <= limit) & (memory.device_bytes <= limit))


def may_fit(memory: Memory, gpu_memory_bytes: Array, sigma: Array | float = 0.0) -> Array:
    """Whether the lower end of the peak's 98 % interval stays within the device.

    A layout that fails this "does not fit", which turns a run away: a wrong one is dearer than a wrong "may
    not fit", said of a layout that passes this but not `fits`.
    """
    least = memory.allocated_bytes * np.exp(-quantile(0.99) * sigma) + memory.context_bytes
    return np.asarray(least <= gpu_memory_bytes)


def verdict(memory: Memory, gpu_memory_bytes: float, sigma: float) -> Verdict:
    """Whether one case fits in memory, as a Verdict."""
    if np.all(fits(memory, np.asarray(gpu_memory_bytes), sigma)):
        return Verdict.FITS
    return (
        Verdict.TIGHT
        if np.all(may_fit(memory, np.asarray(gpu_memory_bytes), sigma))
        else Verdict.DOES_NOT_FIT
    )


def _fullest(stages_: Iterable[Total]) -> Total:
    """The memory of the fullest stage, row by row."""
    fullest, *rest = stages_
    for stage in rest:
        more = stage.device_bytes > fullest.device_bytes
        if np.any(more):
            names = [f.name for f in fields(fullest)]
            fullest = replace(
                fullest, **{n: np.where(more, getattr(stage, n), getattr(fullest, n)) for n in names}
            )
    return fullest


def stage_memory(cases: Cases, p: Parameters, index: Array) -> Memory:
    """Peak bytes by cause of one pipeline stage (0 is the first)."""
    cases = with_float_counts(cases)
    return fullest_stage(cases, p, stages(cases, p, [index]))


def with_float_counts(cases: Cases) -> Cases:
    """The cases with the layout's counts as floats, converted once for all formulas."""
    layout = cases.layout
    counts = {name: getattr(layout, name).astype(float) for name in layout.names() if name not in _NOT_COUNTS}
    return replace(cases, layout=layout.replace(**counts))


_AXES = ("dp", "tp", "pp", "cp", "ep")

_NOT_COUNTS = {"offload", "sequence_parallel"}


@immutable
class _Phases:
    """A stage's bytes, and the totals of temporary memory early (until its backward ends) and late."""

    state: States
    persistent: Array
    activations: Array
    temporaries: Array
    early: Array
    late: Array


def _phases(cases: Cases, p: Parameters, stage: StageMemory, per: StateRates) -> _Phases:
    """`persistent`: gradients are allocated for the whole step."""
    profile, unsharded = cases.framework, stage.unsharded_bytes
    adapters = Adapters(low_rank=stage.low_rank, copied=stage.copied, embeddings=stage.embeddings)
    state = states(stage.plain, stage.experts, adapters, per)
    temporaries = _optimizer_temporary_bytes(cases) * state.trained * p.step_temporaries
    activations = in_flight(cases, stage.index, stage.lacking) * stage.activations_bytes
    persistent = profile.persistent_gradients | (cases.layout.micro_batches > 1)
    during = np.where(persistent, state.gradients, 0.0) + activations + unsharded
    return _Phases(
        state=state,
        persistent=persistent,
        activations=activations,
        temporaries=temporaries,
        early=during + np.maximum(stage.loss_bytes, stage.working_bytes),
        late=state.gradients + np.maximum(stage.working_bytes + unsharded, temporaries),
    )


def _optimizer_temporary_bytes(cases: Cases) -> Array:
    """Bytes per trained parameter that an unfused optimizer holds during its step."""
    profile, year = cases.framework, cases.workload.library_year
    since = profile.fused_optimizer_since
    return np.where((since > 0) & ((year == 0) | (year >= since)), 0.0, profile.optimizer_temporary_bytes)


def _stage_memory(cases: Cases, p: Parameters, stage: StageMemory, per: StateRates, context: Array) -> Memory:
    """Bytes by cause at the fullest phase: loss or a layer's backward; late: last layer or optimizer step."""
    loss, working, buckets = stage.loss_bytes, stage.working_bytes, stage.buckets_bytes
    at = _phases(cases, p, stage, per)
    late, state = at.late > at.early, at.state
    step = late & (at.temporaries >= working + stage.unsharded_bytes)
    at_loss = ~late & (loss > working)
    gradients = np.where(at.persistent | late, state.gradients, 0.0)
    activations = np.where(late, 0.0, at.activations)
    unsharded = np.where(step, 0.0, stage.unsharded_bytes)
    loss_then, working_then = np.where(at_loss, loss, 0.0), np.where(at_loss | step, 0.0, working)
    temporaries = np.where(step, at.temporaries, 0.0)
    fixed = state.weights + state.optimizer + stage.workspaces_bytes + gradients
    dynamic = activations + unsharded + loss_then + working_then + temporaries + buckets
    return Memory(
        weights_bytes=state.weights,
        gradients_bytes=gradients,
        optimizer_bytes=state.optimizer,
        activations_bytes=activations,
        working_bytes=working_then,
        loss_bytes=loss_then,
        unsharded_bytes=unsharded,
        buckets_bytes=buckets,
        temporaries_bytes=temporaries,
        workspaces_bytes=stage.workspaces_bytes,
        slack_bytes=_slack(cases, p, fixed + context, dynamic, stage),
        context_bytes=context,
    )


def _stage_peak(cases: Cases, p: Parameters, stage: StageMemory, per: StateRates, context: Array) -> Peak:
    at = _phases(cases, p, stage, per)
    gradients = np.where(at.persistent | (at.late > at.early), at.state.gradients, 0.0)
    fixed = at.state.weights + at.state.optimizer + stage.workspaces_bytes + gradients
    dynamic = np.maximum(at.early, at.late) - gradients + stage.buckets_bytes
    slack = _slack(cases, p, fixed + context, dynamic, stage)
    return Peak(allocated_bytes=fixed + dynamic, slack_bytes=slack, context_bytes=context)


def _context(cases: Cases, p: Parameters) -> Array:
    """The CUDA context, and a communicator's buffers for every kind of group of the GPU."""
    layout = cases.layout
    groups = sum((np.asarray(getattr(layout, axis) > 1, dtype=float) for axis in _AXES), np.zeros(()))
    return np.asarray(p.context_bytes + p.communicator_bytes * groups)


def _slack(cases: Cases, p: Parameters, fixed: Array, dynamic: Array, stage: StageMemory) -> Array:
    """Unused blocks cached by the allocator, which frees them before it runs out of memory.

    A share of all dynamic bytes, a share of the phase that is not the peak (its blocks do not fit the other
    phase), and more of the peak if batches vary in length. `fixed` includes the context.
    """
    loss, working = stage.loss_bytes, stage.working_bytes
    wanted = p.reserved_slack * dynamic + p.phase_slack * np.minimum(loss, working)
    if np.any(cases.workload.variable_length):
        varied = np.where(cases.workload.variable_length, p.variable_slack, 0.0)
        wanted = wanted + varied * np.maximum(loss, working)
    room = _ELASTIC_LIMIT * cases.gpu.memory_bytes - fixed - dynamic
    return np.asarray(np.maximum(np.minimum(wanted, room), 0.0))
