"""Peak bytes per GPU, by cause, on the fullest pipeline stage.

A stage's peak is the largest of three moments: the loss (all activations in flight and the logits), the
backward of a layer (activations and that layer's working set), the optimizer's step (its temporaries;
activations are gone). States and buffers live through all three. Allocated, reserved and device bytes are
three figures: the allocator keeps blocks it does not use, and the context and the communicators take
memory it never sees.
"""

from dataclasses import dataclass, field, fields

import numpy as np

from rightsizer.architecture import layers_dense, layers_moe
from rightsizer.cases import Cases
from rightsizer.columns import Array, Columns
from rightsizer.framework import StageBalance
from rightsizer.layout import Offload, Sharding
from rightsizer.memory_activations import Saved, adapter_parameters, loss_bytes, saved, trains_embeddings
from rightsizer.memory_states import Adapters, LayerWeights, embeddings, layer_weights, states
from rightsizer.parameters import Parameters, load_memory
from rightsizer.workload import Method, Recompute

__all__ = ["MEMORY_LIMIT", "Memory", "estimate", "fits", "stage_memory"]

MEMORY_LIMIT = 0.96
"""No plan may take more than this share of a device: the driver and fragmentation need the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        parts = (
            getattr(self, f.name) for f in fields(self) if f.name not in {"slack_bytes", "context_bytes"}
        )
        return np.asarray(sum(parts))

    @property
    def reserved_bytes(self) -> Array:
        """What the allocator has taken from the device (torch max_memory_reserved)."""
        return np.asarray(self.allocated_bytes + self.slack_bytes)

    @property
    def device_bytes(self) -> Array:
        """What the device shows as used (nvidia-smi): with the context and the communicators."""
        return np.asarray(self.reserved_bytes + self.context_bytes)


def estimate(cases: Cases, parameters: Parameters | None = None) -> Memory:
    """Peak bytes by cause on the fullest pipeline stage of every case."""
    p = parameters or load_memory()
    pipeline = np.asarray(cases.layout.pp)
    last = pipeline - 1
    best = stage_memory(cases, p, np.zeros_like(pipeline))
    candidates = [last] if np.any(pipeline > 1) else []
    if np.any((pipeline > 2) & (cases.framework.stage_balance != StageBalance.EVEN)):
        candidates.append(np.minimum(1, last))
    for stage in candidates:
        best = _fuller(best, stage_memory(cases, p, stage))
    return best


def fits(memory: Memory, gpu_memory_bytes: Array) -> Array:
    """Whether the peak stays inside the share of the device that plans may take."""
    return np.asarray(memory.device_bytes <= MEMORY_LIMIT * gpu_memory_bytes)


def _fuller(one: Memory, other: Memory) -> Memory:
    """Row by row the memory of the fuller stage."""
    more = other.device_bytes > one.device_bytes
    return Memory(
        **{f.name: np.where(more, getattr(other, f.name), getattr(one, f.name)) for f in fields(Memory)}
    )


def stage_memory(cases: Cases, p: Parameters, stage: Array) -> Memory:
    """Peak bytes by cause of one pipeline stage (0 is the first)."""
    a, profile, layout = cases.architecture, cases.framework, cases.layout
    layer, kept = layer_weights(cases), saved(cases, p)
    first, last = stage == 0, stage == layout.pp - 1
    dense_layers, moe_layers = _stage_layers(cases, layer, stage, first, last)
    embedding, head = embeddings(a)
    ends = (embedding * first + head * last * _own_head(a, layout)) / layout.tp
    extra = (a.extra_parameters + a.mtp_layers * layer.moe_layer()) * last
    plain = dense_layers * layer.dense_layer() + moe_layers * layer.moe_layer() + ends + extra
    experts = moe_layers * layer.experts
    adapters = Adapters(
        low_rank=adapter_parameters(cases) * (dense_layers + moe_layers),
        copied=np.where(trains_embeddings(cases), ends, 0.0),
        embeddings=ends,
    )
    state = states(cases, plain, experts, adapters, p.four_bit_bytes)
    activations = _activations(cases, kept, dense_layers, moe_layers, stage)
    working = _working(cases, kept, dense_layers, p)
    head_gradient = np.where(profile.fused_weight_gradients, 2.0 * head / layout.tp, 0.0)
    loss = np.where(last, loss_bytes(cases, p) + head_gradient, 0.0)
    unsharded = _unsharded(cases, layer, moe_layers, ends, p)
    held = profile.persistent_gradients | (layout.micro_batches > 1)
    moment = _fullest_moment(
        _Moment(
            gradients=np.where(held, state.gradients, 0.0),
            activations=activations,
            loss=loss,
            unsharded=unsharded,
        ),
        _Moment(
            gradients=np.where(held, state.gradients, 0.0),
            activations=activations,
            working=working,
            unsharded=unsharded,
        ),
        _Moment(gradients=state.gradients, working=working, unsharded=unsharded),
        _Moment(
            gradients=state.gradients,
            temporaries=profile.optimizer_temporary_bytes * state.trained * p.step_temporaries,
        ),
    )
    workspaces = np.asarray(p.workspace_bytes + _dummy_gradients(cases, layer, dense_layers, moe_layers))
    buckets = np.asarray(profile.bucket_bytes * p.bucket_scale * _buckets_used(cases))
    fixed = state.weights + state.optimizer + workspaces + moment.gradients
    dynamic = (
        moment.activations + moment.working + moment.loss + moment.unsharded + moment.temporaries + buckets
    )
    return Memory(
        weights_bytes=state.weights,
        gradients_bytes=moment.gradients,
        optimizer_bytes=state.optimizer,
        activations_bytes=moment.activations,
        working_bytes=moment.working,
        loss_bytes=moment.loss,
        unsharded_bytes=moment.unsharded,
        buckets_bytes=buckets,
        temporaries_bytes=moment.temporaries,
        workspaces_bytes=workspaces,
        slack_bytes=_slack(cases, p, fixed, dynamic, (loss, working)),
        context_bytes=np.asarray(p.context_bytes + 0.0 * dynamic),
    )


def _nothing() -> Array:
    return np.zeros(())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What is alive at one moment of a step, beside the states and buffers that always are."""

    gradients: Array = field(default_factory=_nothing)
    activations: Array = field(default_factory=_nothing)
    working: Array = field(default_factory=_nothing)
    loss: Array = field(default_factory=_nothing)
    unsharded: Array = field(default_factory=_nothing)
    temporaries: Array = field(default_factory=_nothing)

    def total(self) -> Array:
        """All bytes of the moment."""
        return (
            self.gradients + self.activations + self.working + self.loss + self.unsharded + self.temporaries
        )


def _fullest_moment(*moments: _Moment) -> _Moment:
    """Row by row the moment with the most bytes."""
    best, total = moments[0], moments[0].total()
    for other in moments[1:]:
        theirs = other.total()
        more = theirs > total
        best = _Moment(
            **{f.name: np.where(more, getattr(other, f.name), getattr(best, f.name)) for f in fields(_Moment)}
        )
        total = np.maximum(total, theirs)
    return best


def _own_head(a: Columns, layout: Columns) -> Array:
    """1 where the last stage holds a head of its own.

    Always, unless it shares the embedding of the only stage.
    """
    return np.where(np.asarray(a.tied_embeddings, dtype=bool) & (layout.pp == 1), 0.0, 1.0)


def _stage_layers(
    cases: Cases, layer: LayerWeights, stage: Array, first: Array, last: Array
) -> tuple[Array, Array]:
    """(dense, MoE) layers of a stage, by the profile's rule of balance."""
    a, pp = cases.architecture, np.asarray(cases.layout.pp, dtype=float)
    layers = a.layers + a.encoder_layers * 1.0
    even = np.where(last, layers - np.ceil(layers / pp) * (pp - 1), np.ceil(layers / pp))
    even = np.where(layers % pp == 0, layers / pp, np.maximum(even, 0.0))
    chunks = pp * cases.layout.vpp
    ends_fit = ((layers % chunks) != 0) & ((layers + 2) % chunks == 0)
    counted = np.maximum((layers + 2) / pp - first - last, 0.0)
    head = a.vocab * a.hidden / np.maximum(layer.attention + layer.dense, 1.0) / cases.layout.tp
    spread = np.ceil((layers + head) / pp)
    by_cost = np.where(last, np.maximum(layers - spread * (pp - 1), 0.0), spread)
    balance = cases.framework.stage_balance
    share = np.where((balance == StageBalance.ENDS) | ends_fit, counted, even)
    share = np.where(balance == StageBalance.COST, by_cost, share)
    share = np.where(pp == 1, layers, share)
    sparse = layers_moe(a)
    dense = layers_dense(a) + a.encoder_layers
    one_stage = np.where(pp == 1, dense, np.where(first, np.minimum(dense, share), 0.0))
    mixed = a.moe_layer_step > 1
    dense_here = np.where(sparse > 0, np.where(mixed, share * dense / layers, one_stage), share)
    return dense_here, share - dense_here


def _activations(cases: Cases, kept: Saved, dense: Array, moe: Array, stage: Array) -> Array:
    """All micro-batches in flight on a stage.

    1F1B holds min(p - i, m), interleaving 2(p-i-1) + (v-1)p + 1 chunks.
    """
    layout = cases.layout
    p, v, m = layout.pp, layout.vpp, layout.micro_batches
    plain = np.minimum(p - stage, m)
    chunks = np.minimum((p - stage - 1) * 2 + (v - 1) * p + 1, m * v) / v
    flight = np.where(v > 1, chunks, plain)
    partly = (layout.recompute == Recompute.FULL) & (layout.recompute_layers > 0)
    rest = np.where(
        partly, np.maximum(dense + moe - layout.recompute_layers, 0.0) / np.maximum(dense + moe, 1.0), 0.0
    )
    one = dense * kept.dense + moe * kept.moe
    one = one + rest * (dense * (kept.dense_full - kept.dense) + moe * (kept.moe_full - kept.moe))
    offloaded = (layout.offload & Offload.ACTIVATIONS) != 0
    return np.where(offloaded, 0.0, flight * one)


def _working(cases: Cases, kept: Saved, dense: Array, p: Parameters) -> Array:
    """A layer's backward: what recomputation brings back, and the gradients inside the layer."""
    full = np.where(
        dense > 0,
        np.maximum(kept.dense_full, np.where(cases.architecture.experts > 0, kept.moe_full, 0.0)),
        kept.moe_full,
    )
    stored = np.where(dense > 0, kept.dense, kept.moe)
    brought_back = np.where(cases.layout.recompute == Recompute.NONE, 0.0, np.maximum(full - stored, 0.0))
    return brought_back + p.backward_working * full


def _unsharded(cases: Cases, layer: LayerWeights, moe_layers: Array, ends: Array, p: Parameters) -> Array:
    """Layers whose weights (and gradients) are whole at once under ZeRO-3, and dequantised matrices."""
    profile, layout = cases.framework, cases.layout
    biggest = np.where(moe_layers > 0, layer.moe_layer() + layer.experts, layer.dense_layer())
    whole = 2.0 * (
        profile.unsharded_layers * p.unsharded_layers * biggest + ends * profile.gathers_embeddings
    )
    sharded = np.isin(layout.sharding, [Sharding.ZERO3, Sharding.HSDP])
    dequantised = np.where(
        cases.workload.method == Method.QLORA, 2.0 * np.maximum(layer.dense / 3.0, layer.attention / 4.0), 0.0
    )
    return np.where(sharded, whole, 0.0) + dequantised


def _dummy_gradients(cases: Cases, layer: LayerWeights, dense: Array, moe: Array) -> Array:
    """TransformerEngine keeps one bf16 gradient buffer per distinct matrix shape while the job lives."""
    shapes = np.where(dense > 0, layer.attention + layer.dense, layer.attention)
    shapes = shapes + np.where(moe > 0, layer.shared + layer.one_expert, 0.0)
    trains = ~np.isin(cases.workload.method, [Method.LORA, Method.QLORA])
    return np.where(np.asarray(cases.framework.te_dummy_gradients, dtype=bool) & trains, 2.0 * shapes, 0.0)


def _buckets_used(cases: Cases) -> Array:
    """DeepSpeed's buckets exist when it shards; with adapters they are as small as these."""
    trains = ~np.isin(cases.workload.method, [Method.LORA, Method.QLORA])
    return np.where(trains & ((cases.layout.sharding >= Sharding.ZERO1) | (cases.layout.pp > 1)), 1.0, 0.0)


def _slack(cases: Cases, p: Parameters, fixed: Array, dynamic: Array, phases: tuple[Array, Array]) -> Array:
    """Blocks that the allocator keeps without use: it frees them before it fails.

    A share of all dynamic bytes, a share of the phase that is not the peak (its blocks do not fit the
    other's), and more of the peak where batches vary in length.
    """
    loss, working = phases
    varied = np.where(cases.workload.variable_length, p.variable_slack, 0.0) * np.maximum(loss, working)
    wanted = p.reserved_slack * dynamic + p.phase_slack * np.minimum(loss, working) + varied
    room = 0.97 * cases.gpu.memory_bytes - fixed - dynamic - p.context_bytes
    return np.asarray(np.clip(np.minimum(wanted, room), 0.0, None))
