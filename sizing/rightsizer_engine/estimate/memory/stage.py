"""One pipeline stage: its layers, its parameters, and its micro-batches in flight.

Legend: p stages, i a stage (0 first), v chunks of an interleaved stage, m micro-batches, L layers.
"""

import numpy as np

from rightsizer_engine.domain.architecture import (
    encoder_layer_parameters,
    layers_dense,
    layers_moe,
    tower_layers,
)
from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.framework import StageBalance
from rightsizer_engine.estimate.memory.activations import adapter_parameters, trains_embeddings
from rightsizer_engine.estimate.memory.states import Adapters, LayerWeights, embeddings
from rightsizer_engine.values import immutable


@immutable
class PipelineStage:
    """Layers and parameters of one stage on one GPU, before ZeRO. `first` and `last` mark the end stages.

    `lacking` is the relative lack of layers because an embedding or a head takes a layer's place.
    """

    first: Array
    last: Array
    dense_layers: Array
    moe_layers: Array
    plain: Array
    experts: Array
    embeddings: Array
    head: Array
    adapters: Adapters
    lacking: Array


def stage(cases: Cases, layer: LayerWeights, index: Array) -> PipelineStage:
    """The stage of that index: its share of layers, the embedding on the first, the head on the last."""
    a, layout = cases.architecture, cases.layout
    first, last = index == 0, index == layout.pp - 1
    dense, moe = _layers(cases, layer, first, last)
    embedding, head = embeddings(a)
    predicts = a.mtp_layers * last
    looks_up = np.maximum(first, np.minimum(predicts, 1))  # predicted layers embed their tokens again
    ends = (embedding * looks_up + head * last * _own_head(a, layout)) / layout.tp
    ahead = np.where(a.experts > 0, layer.moe_layer(), layer.dense_layer()) + 2.0 * a.hidden**2 / layout.tp
    extra = a.extra_parameters * last + predicts * ahead + _tower(a) / layout.tp * first
    low_dense, low_moe = adapter_parameters(cases)
    return PipelineStage(
        first=first,
        last=last,
        dense_layers=dense,
        moe_layers=moe,
        plain=dense * layer.dense_layer() + moe * layer.moe_layer() + ends + extra,
        experts=(moe + predicts) * layer.experts,
        embeddings=ends,
        head=head / layout.tp,
        adapters=Adapters(
            low_rank=low_dense * dense + low_moe * moe,
            copied=np.where(trains_embeddings(cases), ends, 0.0),
            embeddings=ends,
        ),
        lacking=(_counts_ends(cases) & (first | last) & (layout.pp > 1)) / np.maximum(dense + moe, 1.0),
    )


def in_flight(cases: Cases, index: Array, lacking: Array | float = 0.0) -> Array:
    """Micro-batches whose activations a stage holds: 1F1B min(p - i, m).

    Interleaved in groups of g micro-batches (p by default) it holds 2(p - i - 1) + (v - 1)g + 1
    chunks: with v = 3, p = 4 the last stage has 9 (measured 8.8), and 11 where g = 5 (measured 10.7). An
    embedding or a head that counts as a layer (`lacking`: over the layers of the stage) takes a layer's place
    in the first stage's first chunk or in the last stage's last one: that chunk has all slots beyond the
    (v - 1)g of the other chunks, more than the mean on the first stage, one on the last.
    """
    p, v, m = cases.layout.pp, cases.layout.vpp, cases.layout.micro_batches
    group = cases.framework.interleaved_group
    other_chunks = (v - 1) * np.minimum(np.where(group > 0, group, p), m)
    slots = np.minimum((p - index - 1) * 2 + other_chunks + 1, m * v)
    chunks = (1.0 + lacking) * slots / v - lacking * np.clip(slots - other_chunks, 0.0, m)
    return np.asarray(np.where(v > 1, chunks, np.minimum(p - index, m)))


def _own_head(a: Columns, layout: Columns) -> Array:
    """1 where the last stage holds its own head: always, unless a single stage ties it to the embedding."""
    return np.where(np.asarray(a.tied_embeddings, dtype=bool) & (layout.pp == 1), 0.0, 1.0)


def _tower(a: Columns) -> Array:
    """Parameters of a second tower, which sits on the first stage."""
    return np.asarray(tower_layers(a) * (encoder_layer_parameters(a) + a.encoder_per_layer_parameters))


def _layers(cases: Cases, layer: LayerWeights, first: Array, last: Array) -> tuple[Array, Array]:
    """(dense, MoE) layers of a stage; leading dense layers sit on the first."""
    a = cases.architecture
    encoder = a.encoder_layers - tower_layers(a)
    layers = a.layers + encoder
    share = _share(cases, layer, layers, first, last)
    sparse, dense = layers_moe(a), layers_dense(a) + encoder
    leading = np.where(cases.layout.pp == 1, dense, np.where(first, np.minimum(dense, share), 0.0))
    mixed = np.where((a.moe_layer_step > 1) | (a.mlp_free_layers > 0), share * dense / layers, leading)
    dense_layers = np.where(sparse > 0, mixed, share)
    return dense_layers, share - dense_layers


def _share(cases: Cases, layer: LayerWeights, layers: Array, first: Array, last: Array) -> Array:
    """Layers of a stage, by the profile's rule of balance."""
    a, pp = cases.architecture, np.asarray(cases.layout.pp, dtype=float)
    most = np.ceil(layers / pp)
    even = np.where(last, np.maximum(layers - most * (pp - 1), 0.0), most)
    counted = np.maximum((layers + 2) / pp - first - last, 0.0)
    head = a.vocab * a.hidden / np.maximum(layer.attention + layer.dense, 1.0) / cases.layout.tp
    spread = np.ceil((layers + head) / pp)
    by_cost = np.where(last, np.maximum(layers - spread * (pp - 1), 0.0), spread)
    balance = cases.framework.stage_balance
    share = np.where(_counts_ends(cases), counted, even)
    share = np.where(balance == StageBalance.COST, by_cost, share)
    return np.where(pp == 1, layers, _stated(cases, layers, share, first, last))


def _stated(cases: Cases, layers: Array, share: Array, first: Array, last: Array) -> Array:
    """The layers of a stage if the run states those of the first or the last one."""
    at_first, at_last = cases.framework.first_stage_layers, cases.framework.last_stage_layers
    middle = np.maximum(cases.layout.pp - (at_first > 0) - (at_last > 0), 1)
    unstated = np.ceil(np.maximum(layers - at_first - at_last, 0.0) / middle)
    share = np.where((at_first > 0) | (at_last > 0), unstated, share)
    return np.where(first & (at_first > 0), at_first, np.where(last & (at_last > 0), at_last, share))


def _counts_ends(cases: Cases) -> Array:
    """True if embedding and head count as layers: by the profile's rule, or if only then chunks are equal."""
    a = cases.architecture
    layers = a.layers + a.encoder_layers - tower_layers(a)
    chunks = np.asarray(cases.layout.pp, dtype=float) * cases.layout.vpp
    fit = ~_divides(chunks, layers) & _divides(chunks, layers + 2)
    return np.asarray((cases.framework.stage_balance == StageBalance.ENDS) | fit)


def ends_lighter(cases: Cases) -> Array:
    """True if the first stage may hold less than the second: fewer layers, or dense ones before experts."""
    a = cases.architecture
    profile = cases.framework
    uneven = (profile.stage_balance != StageBalance.EVEN) | _counts_ends(cases)
    uneven = uneven | (profile.first_stage_layers + profile.last_stage_layers > 0)
    return np.asarray(uneven | ((a.experts > 0) & (a.dense_layers > 0)))


def _divides(chunks: Array, layers: Array) -> Array:
    """True if the layers fill the chunks evenly."""
    share = layers / chunks
    return np.asarray(share == np.floor(share))
