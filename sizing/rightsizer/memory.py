"""Peak bytes per GPU, by cause, on the fullest pipeline stage.

A stage's peak is the largest of three moments: the loss (all activations in flight and the logits), the
backward of a layer (activations and that layer's working set), the optimizer's step (its temporaries;
activations are gone). States and buffers live through all three. Allocated, reserved and device bytes
differ: the allocator keeps blocks without use, and never sees what context and communicators take.
"""

import enum
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from rightsizer.cases import Cases
from rightsizer.columns import Array
from rightsizer.layout import Offload, Sharding
from rightsizer.memory_activations import Saved, loss_bytes, saved
from rightsizer.memory_stage import Stage, ends_lighter, in_flight, stage
from rightsizer.memory_states import (
    Adapters,
    LayerWeights,
    Rates,
    adapters_only,
    layer_weights,
    rates,
    states,
)
from rightsizer.parameters import Parameters, load_memory
from rightsizer.values import immutable
from rightsizer.workload import Method, Recompute

__all__ = [
    "MEMORY_LIMIT",
    "Held",
    "Memory",
    "Verdict",
    "candidates",
    "estimate",
    "fits",
    "in_floats",
    "may_fit",
    "of_stages",
    "runs_in",
    "stage_memory",
    "stages",
    "verdict",
]

MEMORY_LIMIT = 0.96
"""No plan may take more than this share of a device: the driver and fragmentation need the rest."""


_Z_80 = 1.2815515655446004
"""Half width of the central 80 % of a normal distribution, in standard deviations."""
_Z_90 = 1.6448536269514722
"""Half width of the central 90 % of a normal distribution, in standard deviations."""

ELASTIC_LIMIT = 0.95
"""Share of a device up to which the allocator keeps unused blocks; nearer to the end it gives them back."""


class Verdict(enum.StrEnum):
    """Whether a layout fits: surely enough to plan with, too near the limit to promise, or not at all."""

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
        """What the framework's allocator has handed out (torch max_memory_allocated)."""
        names = [f.name for f in fields(self) if f.name not in {"slack_bytes", "context_bytes"}]
        return np.asarray(sum(getattr(self, name) for name in names))

    @property
    def reserved_bytes(self) -> Array:
        """What the allocator has taken from the device (torch max_memory_reserved)."""
        return np.asarray(self.allocated_bytes + self.slack_bytes)

    @property
    def device_bytes(self) -> Array:
        """What the device shows as used (nvidia-smi): with the context and the communicators."""
        return np.asarray(self.reserved_bytes + self.context_bytes)


@immutable
class Held:
    """What a stage holds whatever the number of replicas and micro-batches.

    Parameters are those on one GPU before ZeRO, activations those of one micro-batch.
    """

    index: Array
    plain: Array
    experts: Array
    low_rank: Array
    copied: Array
    embeddings: Array
    lacking: Array
    activations_bytes: Array
    loss_bytes: Array
    working_bytes: Array
    unsharded_bytes: Array
    buckets_bytes: Array
    workspaces_bytes: Array


def estimate(cases: Cases, parameters: Parameters | None = None) -> Memory:
    """Peak bytes by cause on the fullest pipeline stage of every case."""
    p = parameters or load_memory()
    cases = in_floats(cases)
    return of_stages(cases, p, stages(cases, p, candidates(cases)))


def candidates(cases: Cases) -> list[Array]:
    """Indices of the stages that may be the fullest.

    The first, the last, and the second where the ends hold fewer layers or the first holds dense ones.
    """
    pipeline = np.asarray(cases.layout.pp)
    found = [np.zeros_like(pipeline)]
    if np.any(pipeline > 1):
        found.append(pipeline - 1)
    if np.any((pipeline > 2) & ends_lighter(cases)):
        found.append(np.minimum(1, pipeline - 1))
    return found


def stages(cases: Cases, p: Parameters, indices: Sequence[Array]) -> tuple[Held, ...]:
    """What the stages of these indices hold."""
    parts = _parts(cases, p)
    return tuple(_held(cases, p, index, parts) for index in indices)


def of_stages(cases: Cases, p: Parameters, some: Sequence[Held]) -> Memory:
    """Peak bytes by cause on the fullest of some stages."""
    per = rates(cases, p.four_bit_bytes)
    best, *others = (_stage_memory(cases, p, held, per) for held in some)
    for other in others:
        best = _fuller(best, other)
    return best


def fits(memory: Memory, gpu_memory_bytes: Array, sigma: Array | float = 0.0) -> Array:
    """Whether the peak stays within MEMORY_LIMIT even at the upper end of its 80 % interval.

    Blocks that the allocator keeps without use do not count against the margin: it gives them back first.
    """
    limit = MEMORY_LIMIT * gpu_memory_bytes
    needed = memory.allocated_bytes * np.exp(_Z_80 * sigma) + memory.context_bytes
    return np.asarray((needed <= limit) & (memory.device_bytes <= limit))


def may_fit(memory: Memory, gpu_memory_bytes: Array, sigma: Array | float = 0.0) -> Array:
    """Whether the peak may stay within the device: it does at the lower end of the 90 % interval.

    Only what fails this "does not fit"; between this and `fits` lies what is too tight to promise.
    """
    least = memory.allocated_bytes * np.exp(-_Z_90 * sigma) + memory.context_bytes
    return np.asarray(least <= gpu_memory_bytes)


def verdict(memory: Memory, gpu_memory_bytes: float, sigma: float) -> Verdict:
    """What can be said of one case's memory."""
    if np.all(fits(memory, np.asarray(gpu_memory_bytes), sigma)):
        return Verdict.FITS
    return (
        Verdict.TIGHT
        if np.all(may_fit(memory, np.asarray(gpu_memory_bytes), sigma))
        else Verdict.DOES_NOT_FIT
    )


def runs_in(memory: Memory, gpu_memory_bytes: float) -> bool:
    """Whether a run could exist at all: what it allocates and the context stay within the device."""
    return bool(np.all(memory.allocated_bytes + memory.context_bytes <= gpu_memory_bytes))


def _fuller(one: Memory, other: Memory) -> Memory:
    """Row by row the memory of the fuller stage."""
    more = other.device_bytes > one.device_bytes
    if not np.any(more):
        return one
    return Memory(
        **{f.name: np.where(more, getattr(other, f.name), getattr(one, f.name)) for f in fields(Memory)}
    )


def stage_memory(cases: Cases, p: Parameters, index: Array) -> Memory:
    """Peak bytes by cause of one pipeline stage (0 is the first)."""
    cases = in_floats(cases)
    return of_stages(cases, p, stages(cases, p, [index]))


def in_floats(cases: Cases) -> Cases:
    """The same cases with the layout's counts as floats, so that no formula converts them again."""
    layout = cases.layout
    counts = {name: getattr(layout, name).astype(float) for name in layout.names() if name not in _NOT_COUNTS}
    return replace(cases, layout=layout.replace(**counts))


_NO_ADAPTERS = Adapters(low_rank=np.zeros(()), copied=np.zeros(()), embeddings=np.zeros(()))

_AXES = ("dp", "tp", "pp", "cp", "ep")

_NOT_COUNTS = {"offload", "sequence_parallel"}


@immutable
class _Parts:
    """What all stages share."""

    layer: LayerWeights
    kept: Saved
    loss: Array


def _parts(cases: Cases, p: Parameters) -> _Parts:
    kept = saved(cases, p)
    return _Parts(layer=layer_weights(cases), kept=kept, loss=loss_bytes(cases, p, kept))


def _held(cases: Cases, p: Parameters, index: Array, parts: _Parts) -> Held:
    """The stage of that index."""
    profile, here = cases.framework, stage(cases, parts.layer, index)
    adapters = here.adapters if np.any(adapters_only(cases.workload)) else _NO_ADAPTERS
    head_gradient = np.where(profile.fused_weight_gradients, 2.0 * here.head, 0.0)
    return Held(
        index=index,
        plain=here.plain,
        experts=here.experts,
        low_rank=adapters.low_rank,
        copied=adapters.copied,
        embeddings=adapters.embeddings,
        lacking=here.lacking,
        activations_bytes=_activations(cases, parts.kept, here),
        loss_bytes=np.where(here.last, parts.loss + head_gradient, 0.0),
        working_bytes=_working(cases, parts.kept, here.dense_layers, p),
        unsharded_bytes=_unsharded(cases, parts.layer, here, p),
        buckets_bytes=np.asarray(profile.bucket_bytes * p.bucket_scale * _buckets_used(cases)),
        workspaces_bytes=np.asarray(p.workspace_bytes + _dummy_gradients(cases, parts.layer, here)),
    )


def _stage_memory(cases: Cases, p: Parameters, here: Held, per: Rates) -> Memory:
    profile, loss, working = cases.framework, here.loss_bytes, here.working_bytes
    adapters = Adapters(low_rank=here.low_rank, copied=here.copied, embeddings=here.embeddings)
    state = states(here.plain, here.experts, adapters, per)
    temporaries = profile.optimizer_temporary_bytes * state.trained * p.step_temporaries
    unsharded = here.unsharded_bytes
    activations = in_flight(cases, here.index, here.lacking) * here.activations_bytes
    held = profile.persistent_gradients | (cases.layout.micro_batches > 1)
    at = _fullest_moment(
        (np.where(held, state.gradients, 0.0) + activations + unsharded, state.gradients),
        loss,
        working,
        working + unsharded,
        temporaries,
    )
    gradients = np.where(held | at.late, state.gradients, 0.0)
    activations = np.where(at.late, 0.0, activations)
    unsharded = np.where(at.step, 0.0, unsharded)
    loss_then, working_then = np.where(at.loss, loss, 0.0), np.where(at.working, working, 0.0)
    temporaries = np.where(at.step, temporaries, 0.0)
    buckets, workspaces = here.buckets_bytes, here.workspaces_bytes
    fixed, context = state.weights + state.optimizer + workspaces + gradients, _context(cases, p)
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
        workspaces_bytes=workspaces,
        slack_bytes=_slack(cases, p, fixed + context, dynamic, (loss, working)),
        context_bytes=context,
    )


@immutable
class _Moment:
    """Which moment is the peak: the loss, a layer's backward; late: the last layer's, the step."""

    loss: Array
    working: Array
    late: Array
    step: Array


def _fullest_moment(
    held: tuple[Array, Array], loss: Array, working: Array, last_layer: Array, temporaries: Array
) -> _Moment:
    """The moment with the most bytes; `held` is what lies beside (during backward, after it)."""
    during, after = held
    early = during + np.maximum(loss, working)
    late = after + np.maximum(last_layer, temporaries)
    is_late = late > early
    step = is_late & (temporaries >= last_layer)
    at_loss = ~is_late & (loss > working)
    return _Moment(loss=at_loss, working=~(at_loss | step), late=is_late, step=step)


def _activations(cases: Cases, kept: Saved, here: Stage) -> Array:
    """One micro-batch on a stage, less what recomputation and offloading leave out."""
    layout = cases.layout
    layers = here.dense_layers + here.moe_layers
    partly = (layout.recompute == Recompute.FULL) & (layout.recompute_layers > 0)
    rest = np.maximum(layers - layout.recompute_layers, 0.0) / np.maximum(layers, 1.0)
    rest = np.where(partly, rest, 0.0)
    one = here.dense_layers * (kept.dense + rest * (kept.dense_full - kept.dense))
    one = one + here.moe_layers * (kept.moe + rest * (kept.moe_full - kept.moe))
    one = one + kept.boundary * (cases.framework.keeps_stage_outputs & ~here.last)
    offloaded = (layout.offload & Offload.ACTIVATIONS) != 0
    if not np.any(layout.offload_layers):
        return np.where(offloaded, 0.0, one)
    stay = np.maximum(layers - layout.offload_layers, 0.0) / np.maximum(layers, 1.0)
    return np.asarray(one * np.where(offloaded, np.where(layout.offload_layers > 0, stay, 0.0), 1.0))


def _working(cases: Cases, kept: Saved, dense: Array, p: Parameters) -> Array:
    """A layer's backward: what recomputation brings back, and the gradients inside the layer."""
    sparse = np.where(cases.architecture.experts > 0, kept.moe_full, 0.0)
    full = np.where(dense > 0, np.maximum(kept.dense_full, sparse), kept.moe_full)
    stored = np.where(dense > 0, kept.dense, kept.moe)
    recomputes = cases.layout.recompute != Recompute.NONE
    return np.where(recomputes, np.maximum(full - stored, 0.0), 0.0) + p.backward_working * full


def _unsharded(cases: Cases, layer: LayerWeights, here: Stage, p: Parameters) -> Array:
    """Layers whose weights (and gradients) are whole at once under ZeRO-3, and dequantised matrices."""
    profile, layout = cases.framework, cases.layout
    biggest = np.where(here.moe_layers > 0, layer.moe_layer() + layer.experts, layer.dense_layer())
    layers = profile.unsharded_layers * p.unsharded_layers * biggest
    whole = 2.0 * (layers + here.embeddings * profile.gathers_embeddings)
    sharded = np.asarray(layout.sharding >= Sharding.ZERO3)
    matrix = np.maximum(layer.dense / 3.0, layer.attention / 4.0)
    return np.where(sharded, whole, 0.0) + np.where(cases.workload.method == Method.QLORA, 2.0 * matrix, 0.0)


def _dummy_gradients(cases: Cases, layer: LayerWeights, here: Stage) -> Array:
    """TransformerEngine keeps one bf16 gradient buffer per distinct matrix shape while the job lives."""
    shapes = layer.attention + np.where(here.dense_layers > 0, layer.dense, 0.0)
    shapes = shapes + np.where(here.moe_layers > 0, layer.shared + layer.one_expert, 0.0)
    return np.where(cases.framework.te_dummy_gradients & _trains_all(cases), 2.0 * shapes, 0.0)


def _buckets_used(cases: Cases) -> Array:
    """DeepSpeed's buckets exist when it shards; with adapters they are as small as these."""
    return np.where(_trains_all(cases) & (cases.layout.sharding >= Sharding.ZERO1), 1.0, 0.0)


def _trains_all(cases: Cases) -> Array:
    """Whether the whole network is trained, not adapters."""
    return ~adapters_only(cases.workload)


def _context(cases: Cases, p: Parameters) -> Array:
    """The CUDA context, and the buffers of a communicator for every kind of group that the GPU is in."""
    layout = cases.layout
    groups = sum((np.asarray(getattr(layout, axis) > 1, dtype=float) for axis in _AXES), np.zeros(()))
    return np.asarray(p.context_bytes + p.communicator_bytes * groups)


def _slack(cases: Cases, p: Parameters, fixed: Array, dynamic: Array, phases: tuple[Array, Array]) -> Array:
    """Blocks that the allocator keeps without use: it frees them before it fails.

    A share of all dynamic bytes, a share of the phase that is not the peak (its blocks do not fit the
    other's), and more of the peak where batches vary in length. `fixed` counts the context too.
    """
    loss, working = phases
    varied = np.where(cases.workload.variable_length, p.variable_slack, 0.0) * np.maximum(loss, working)
    wanted = p.reserved_slack * dynamic + p.phase_slack * np.minimum(loss, working) + varied
    room = ELASTIC_LIMIT * cases.gpu.memory_bytes - fixed - dynamic
    return np.asarray(np.clip(np.minimum(wanted, room), 0.0, None))
