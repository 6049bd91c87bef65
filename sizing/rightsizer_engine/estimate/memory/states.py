"""Bytes held for the whole step: weights, gradients, optimizer states, and copies of them.

Legend: t tensor-parallel ranks, e expert-parallel ranks (times the tensor ranks inside an expert), d
ranks that share sharded states, L layers, h hidden, V vocabulary. Everything is per GPU of one pipeline
stage.
"""

from dataclasses import fields

import numpy as np

from rightsizer_engine.domain.architecture import (
    cross_attention_parameters,
    dense_ffn_parameters,
    embedding_parameters,
    expert_parameters,
    head_parameters,
    mixer_parameters,
    router_parameters,
    shared_expert_parameters,
)
from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.layout import Offload, Sharding
from rightsizer_engine.domain.workload import Method, Optimizer, Precision, Quantiser
from rightsizer_engine.estimate.collectives import expert_shard_ranks, shard_ranks
from rightsizer_engine.estimate.work import quantised_bytes
from rightsizer_engine.values import immutable

_BLACKWELL = 10.0
"""Compute capability from which fp8 matmuls read weights in either layout, without a transposed copy."""


@immutable
class LayerWeights:
    """Parameters of one layer on one GPU after tensor and expert parallelism, before ZeRO."""

    attention: Array
    dense: Array
    shared: Array
    experts: Array
    one_expert: Array
    other: Array

    def dense_layer(self) -> Array:
        """A dense layer."""
        return self.attention + self.dense + self.other

    def moe_layer(self) -> Array:
        """A mixture-of-experts layer, without its routed experts."""
        return self.attention + self.shared + self.other


@immutable
class Ranks:
    """Ranks over which ZeRO divides each kind of state, for the ordinary weights and for experts."""

    weights: Array
    gradients: Array
    optimizer: Array
    expert_weights: Array
    expert_gradients: Array
    expert_optimizer: Array


@immutable
class StateRates:
    """Bytes per parameter of each state, the ranks that divide it, and the states kept on the GPU.

    `kept` is of a weight beside a quantised base that is not quantised; `scales` of what sharding leaves
    whole on every GPU.
    """

    ranks: Ranks
    weight: Array
    gradient: Array
    optimizer: Array
    frozen: Array
    kept: Array
    scales: Array
    weights_held: Array
    optimizer_held: Array


@immutable
class States:
    """Bytes of one stage's states on one GPU; `trained` counts the parameters of its optimizer states."""

    weights: Array
    gradients: Array
    optimizer: Array
    trained: Array


@immutable
class Adapters:
    """A stage's trained parameters beside a frozen base, and its (frozen) embeddings.

    `low_rank` factors are in fp32 (PEFT casts them). `copied` modules (embeddings and head) train in full in
    16 bits; their frozen originals stay.
    """

    low_rank: Array
    copied: Array
    embeddings: Array


def adapters_only(workload: Columns) -> Array:
    """True if only low-rank adapters are trained."""
    return np.asarray((workload.method == Method.LORA) | (workload.method == Method.QLORA))


def layer_weights(cases: Cases) -> LayerWeights:
    """One layer's parameters on one GPU."""
    a, layout = cases.architecture, cases.layout
    tensor = 1.0 / layout.tp
    return LayerWeights(
        attention=(mixer_parameters(a) + cross_attention_parameters(a)) * tensor,
        dense=dense_ffn_parameters(a) * tensor,
        shared=shared_expert_parameters(a) * tensor + router_parameters(a),
        experts=expert_parameters(a) * a.experts / (layout.ep * layout.expert_tp),
        one_expert=expert_parameters(a) / layout.expert_tp,
        other=np.asarray(a.per_layer_parameters, dtype=float),
    )


def ranks(layout: Columns) -> Ranks:
    """ZeRO's divisors. HSDP shards all three states inside its group, which holds a copy of all experts."""
    group, expert_group = shard_ranks(layout), expert_shard_ranks(layout)
    zero1, zero2, zero3 = (
        layout.sharding >= float(s) for s in (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)
    )
    return Ranks(
        weights=np.where(zero3, group, 1.0),
        gradients=np.where(zero2, group, 1.0),
        optimizer=np.where(zero1, group, 1.0),
        expert_weights=np.where(zero3, expert_group, 1.0),
        expert_gradients=np.where(zero2, expert_group, 1.0),
        expert_optimizer=np.where(zero1, expert_group, 1.0),
    )


def state_rates(cases: Cases) -> StateRates:
    """Bytes per parameter and divisors, by the profile, the precision, the optimizer and the sharding.

    With adapters the base is frozen: as many bytes as the framework keeps of a weight (4 where it casts a
    32-bit one at each use), or quantised but for the embedding, the head and the norms.
    """
    frozen = adapters_only(cases.workload)
    weight, gradient, optimizer = _bytes_per_parameter(cases)
    return StateRates(
        ranks=ranks(cases.layout),
        weight=np.where(frozen, _frozen_bytes(cases), weight + _reference_bytes(cases)),
        gradient=gradient,
        optimizer=optimizer,
        frozen=frozen,
        kept=_kept_bytes(cases),
        scales=_scale_bytes(cases),
        weights_held=(cases.layout.offload & Offload.PARAMETERS) == 0,
        optimizer_held=(cases.layout.offload & Offload.OPTIMIZER) == 0,
    )


def states(plain: Array, experts: Array, adapters: Adapters, per: StateRates) -> States:
    """Weights, gradients and optimizer states of a stage. Its parameters are those on one GPU before ZeRO."""
    divide = per.ranks
    weights = per.weight * (plain / divide.weights + experts / divide.expert_weights)
    trained = plain / divide.optimizer + experts / divide.expert_optimizer
    every = States(
        weights=weights * per.weights_held,
        gradients=per.gradient * (plain / divide.gradients + experts / divide.expert_gradients),
        optimizer=per.optimizer * trained * per.optimizer_held,
        trained=trained * per.optimizer_held,
    )
    if not np.any(per.frozen):
        return every
    quantised = plain - adapters.embeddings
    whole = quantised * (1.0 - 1.0 / divide.weights) + experts * (1.0 - 1.0 / divide.expert_weights)
    adapted = _adapter_states(every, adapters, per, per.scales * whole * per.weights_held)
    return States(
        **{
            f.name: np.where(per.frozen, getattr(adapted, f.name), getattr(every, f.name))
            for f in fields(States)
        }
    )


def _adapter_states(base: States, adapters: Adapters, per: StateRates, unsharded: Array) -> States:
    """States if only adapters train: fp32 low-rank factors, 16-bit copies of modules, scales left whole."""
    divide, low, copied = per.ranks, adapters.low_rank, adapters.copied
    ends = adapters.embeddings * np.maximum(per.kept - per.weight, 0.0) * per.weights_held
    trained = (low + copied) / divide.optimizer * per.optimizer_held
    return States(
        weights=base.weights + unsharded + (ends + 4.0 * low + 2.0 * copied) / divide.weights,
        gradients=(4.0 * low + 2.0 * copied) / divide.gradients,
        optimizer=(8.0 * low + 4.0 * copied) / divide.optimizer * per.optimizer_held,
        trained=trained,
    )


def _bytes_per_parameter(cases: Cases) -> tuple[Array, Array, Array]:
    """Bytes of a weight, its gradient and its optimizer state, by the profile and the precision."""
    profile, precision = cases.framework, cases.workload.precision
    half = precision == Precision.FP16
    eight = (precision == Precision.FP8) | (precision == Precision.NVFP4)
    single = precision == Precision.FP32
    transposed = np.where(cases.gpu.compute_capability < _BLACKWELL, profile.fp8_transpose_bytes, 0.0)
    weight = np.where(
        eight, profile.weight_bytes_fp8 + profile.fp8_copy_bytes + transposed, profile.weight_bytes
    )
    gradient = np.where(half, profile.gradient_bytes_fp16, profile.gradient_bytes)
    gradient = np.where(eight & (profile.gradient_bytes_fp8 > 0), profile.gradient_bytes_fp8, gradient)
    master = np.where(half, profile.master_bytes_fp16, profile.master_bytes)
    moments, moment = _moments(cases.workload.optimizer, profile.moment_bytes)
    return (
        np.where(single, 4.0, weight),
        np.where(single, 4.0, gradient),
        np.where(single, 0.0, master) + moments * np.where(single & (moment > 1.0), 4.0, moment),
    )


def _moments(optimizer: Array, moment_bytes: Array) -> tuple[Array, Array]:
    """(number of moments, bytes each): Adam two, 8-bit Adam two of one byte, SGD, Lion and Muon one."""
    single = (optimizer == Optimizer.SGD) | (optimizer == Optimizer.LION) | (optimizer == Optimizer.MUON)
    count = np.where(optimizer == Optimizer.ADAFACTOR, 0.0, np.where(single, 1.0, 2.0))
    return count, np.where(optimizer == Optimizer.ADAMW_8BIT, 1.0, moment_bytes)


def _frozen_bytes(cases: Cases) -> Array:
    """Bytes of a frozen weight: as stated, else fp8 in fp8 runs, quantised with its scales, or as trained."""
    workload, facts = cases.workload, cases.framework
    usual = np.where(facts.frozen_bytes > 0, facts.frozen_bytes, facts.weight_bytes)
    usual = np.where(workload.precision == Precision.FP32, 4.0, usual)
    usual = np.where(workload.precision == Precision.FP8, 1.0, usual)
    plain = np.where(workload.frozen_bits > 0, workload.frozen_bits / 8.0, usual)
    return np.where(workload.method == Method.QLORA, quantised_bytes(cases), plain)


def _reference_bytes(cases: Cases) -> Array:
    """Bytes of a weight's copy in a reference model: 16 bits, or 32 in fp32 runs; kept as the weights are."""
    single = cases.workload.precision == Precision.FP32
    return np.where(cases.workload.reference_model, np.where(single, 4.0, 2.0), 0.0)


def _scale_bytes(cases: Cases) -> Array:
    """Bytes of a quantised weight's scales in bitsandbytes: no parameters, so FSDP does not shard them."""
    workload = cases.workload
    apart = (workload.method == Method.QLORA) & (workload.quantiser == Quantiser.BITSANDBYTES)
    return np.where(apart, quantised_bytes(cases) - workload.quantised_bits / 8.0, 0.0)


def _kept_bytes(cases: Cases) -> Array:
    """Bytes of a frozen weight that stays unquantised: the embedding and the head.

    PEFT's prepare_model_for_kbit_training casts those beside a bitsandbytes base to 32 bits.
    """
    workload = cases.workload
    cast = (workload.method == Method.QLORA) & (workload.quantiser == Quantiser.BITSANDBYTES)
    return np.where(cast, cases.framework.unquantised_bytes, 2.0)


def embeddings(a: Columns) -> tuple[Array, Array]:
    """(embedding, head) parameters; a tied head is a copy of the embedding on the last stage."""
    return embedding_parameters(a), np.maximum(
        head_parameters(a), embedding_parameters(a) * a.tied_embeddings
    )
