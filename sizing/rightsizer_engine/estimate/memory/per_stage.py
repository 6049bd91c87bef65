"""Bytes of one pipeline stage for any number of replicas and micro-batches: the same on any GPU.

Parameters before ZeRO divides them, the activations of one micro-batch, and what is there for a moment only.
"""

from collections.abc import Sequence

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.domain.workload import Method, Quantiser, Recompute
from rightsizer_engine.estimate.memory.activations import (
    SavedActivations,
    loss_bytes,
    saved_activations,
    tower_bytes,
)
from rightsizer_engine.estimate.memory.stage import PipelineStage, stage
from rightsizer_engine.estimate.memory.states import Adapters, LayerWeights, adapters_only, layer_weights
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.work import offloaded_share
from rightsizer_engine.values import immutable

_UNPACKED_BYTES = 10.0
"""Of a GPTQ weight that torch unpacks: two 32-bit copies (shifted, masked) and the 16-bit result."""


@immutable
class StageMemory:
    """A stage's memory that does not depend on the number of replicas and micro-batches.

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


def stages(cases: Cases, p: Parameters, indices: Sequence[Array]) -> tuple[StageMemory, ...]:
    """The bytes of the stages of these indices."""
    parts = _shared_terms(cases, p)
    return tuple(_held(cases, p, index, parts) for index in indices)


NO_ADAPTERS = Adapters(low_rank=np.zeros(()), copied=np.zeros(()), embeddings=np.zeros(()))


@immutable
class _SharedTerms:
    """The terms that all stages share."""

    layer: LayerWeights
    kept: SavedActivations
    loss: Array


def _shared_terms(cases: Cases, p: Parameters) -> _SharedTerms:
    kept = saved_activations(cases, p)
    return _SharedTerms(layer=layer_weights(cases), kept=kept, loss=loss_bytes(cases, p, kept))


def _held(cases: Cases, p: Parameters, index: Array, parts: _SharedTerms) -> StageMemory:
    """The stage of that index."""
    profile, stage_parts = cases.framework, stage(cases, parts.layer, index)
    adapters = stage_parts.adapters if np.any(adapters_only(cases.workload)) else NO_ADAPTERS
    head_gradient = np.where(profile.fused_weight_gradients, 2.0 * stage_parts.head, 0.0)
    return StageMemory(
        index=index,
        plain=stage_parts.plain,
        experts=stage_parts.experts,
        low_rank=adapters.low_rank,
        copied=adapters.copied,
        embeddings=adapters.embeddings,
        lacking=stage_parts.lacking,
        activations_bytes=_activations(cases, parts.kept, stage_parts),
        loss_bytes=np.where(stage_parts.last, parts.loss + head_gradient, 0.0),
        working_bytes=_working(cases, parts.kept, stage_parts.dense_layers, p),
        unsharded_bytes=_unsharded(cases, parts.layer, stage_parts, p),
        buckets_bytes=np.asarray(profile.bucket_bytes * p.bucket_scale * _buckets_used(cases)),
        workspaces_bytes=np.asarray(p.workspace_bytes + _dummy_gradients(cases, parts.layer, stage_parts)),
    )


def _activations(cases: Cases, kept: SavedActivations, stage_parts: PipelineStage) -> Array:
    """One micro-batch on a stage, less what recomputation and offloading leave out."""
    layout = cases.layout
    layers = stage_parts.dense_layers + stage_parts.moe_layers
    recomputes_some = (layout.recompute == Recompute.FULL) & (layout.recompute_layers > 0)
    stored_share = np.maximum(layers - layout.recompute_layers, 0.0) / np.maximum(layers, 1.0)
    stored_share = np.where(recomputes_some, stored_share, 0.0)
    micro_batch_bytes = stage_parts.dense_layers * (
        kept.dense + stored_share * (kept.dense_full - kept.dense)
    )
    micro_batch_bytes = micro_batch_bytes + stage_parts.moe_layers * (
        kept.moe + stored_share * (kept.moe_full - kept.moe)
    )
    micro_batch_bytes = micro_batch_bytes + kept.boundary * (
        cases.framework.keeps_stage_outputs & ~stage_parts.last
    )
    micro_batch_bytes = micro_batch_bytes + tower_bytes(cases) * stage_parts.first
    return np.asarray(micro_batch_bytes * (1.0 - offloaded_share(cases)))


def _working(cases: Cases, kept: SavedActivations, dense: Array, p: Parameters) -> Array:
    """A layer's backward: what recomputation brings back, and the gradients inside the layer."""
    sparse = np.where(cases.architecture.experts > 0, kept.moe_full, 0.0)
    full = np.where(dense > 0, np.maximum(kept.dense_full, sparse), kept.moe_full)
    stored = np.where(dense > 0, kept.dense, kept.moe)
    recomputes = cases.layout.recompute != Recompute.NONE
    sparse = np.where(cases.architecture.experts > 0, kept.moe_gradients, 0.0)
    inside = np.where(dense > 0, np.maximum(kept.dense_gradients, sparse), kept.moe_gradients)
    return np.where(recomputes, np.maximum(full - stored, 0.0), 0.0) + inside


def _unsharded(cases: Cases, layer: LayerWeights, stage_parts: PipelineStage, p: Parameters) -> Array:
    """Layers whose weights (and gradients) are whole at once under ZeRO-3, and dequantised matrices."""
    profile, layout = cases.framework, cases.layout
    biggest = np.where(stage_parts.moe_layers > 0, layer.moe_layer() + layer.experts, layer.dense_layer())
    layers = profile.unsharded_layers * p.unsharded_layers * biggest
    gathered = 2.0 * (layers + stage_parts.embeddings * profile.gathers_embeddings)
    sharded = np.asarray(layout.sharding >= Sharding.ZERO3)
    matrix = np.maximum(layer.dense / 3.0, layer.attention / 4.0)
    gptq = cases.workload.quantiser == Quantiser.GPTQ
    unpacked = np.where(
        cases.workload.method == Method.QLORA, np.where(gptq, _UNPACKED_BYTES, 2.0) * matrix, 0.0
    )
    return np.where(sharded, gathered, 0.0) + unpacked


def _dummy_gradients(cases: Cases, layer: LayerWeights, stage_parts: PipelineStage) -> Array:
    """TransformerEngine keeps one bf16 gradient buffer per distinct matrix shape during the whole job."""
    shapes = layer.attention + np.where(stage_parts.dense_layers > 0, layer.dense, 0.0)
    shapes = shapes + np.where(stage_parts.moe_layers > 0, layer.shared + layer.one_expert, 0.0)
    return np.where(cases.framework.te_dummy_gradients & _trains_all(cases), 2.0 * shapes, 0.0)


def _buckets_used(cases: Cases) -> Array:
    """DeepSpeed's buckets exist when it shards; with adapters they are as small as these."""
    return np.where(_trains_all(cases) & (cases.layout.sharding >= Sharding.ZERO1), 1.0, 0.0)


def _trains_all(cases: Cases) -> Array:
    """Whether the whole network is trained, not adapters."""
    return ~adapters_only(cases.workload)
