"""Seconds of one micro-batch in an average layer, forward and backward, by cause.

Legend: F forward, B backward, H host time for the same work (host_time.py). The GPU waits for launches, and
for the part of a collective that the framework cannot overlap. Recomputed parts count again in B, as a
separate cause.

    waits = (F^4 + H^4)^(1/4) - F

Sharded weights (ZeRO-3, FSDP) are gathered one layer ahead. A share x of the traffic S is never hidden
(copies and the collective's own kernels), the rest competes with the layer's T as a smooth maximum:

    exposed = x S + [ T^3 + ((1-x) S)^3 ]^(1/3) - T
"""

from dataclasses import fields, replace

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.framework import KernelStyle, SelectiveRecompute
from rightsizer_engine.domain.layout import Offload, Sharding
from rightsizer_engine.domain.workload import Method, Precision, Quantiser, Recompute, ScaleGranularity
from rightsizer_engine.estimate.attention import AttentionTimes
from rightsizer_engine.estimate.collectives import (
    Links,
    all_to_all_s,
    expert_shard_ranks,
    group,
    ring_s,
    shard_ranks,
)
from rightsizer_engine.estimate.host_time import (
    HOST_CLASSES,
    expert_wait_s,
    host_class,
    launches_s,
    superchip,
)
from rightsizer_engine.estimate.kernels import GpuRates, KernelTimes, fused_experts, fused_sums
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.work import BF16_BYTES, LayerWork, frozen, offloaded_share, quantised_bytes
from rightsizer_engine.values import immutable

_C2C_BYTES_PER_S = 4.5e11  # NVLink-C2C between a Grace CPU and its GPU, one direction
_ZERO3_RAILS_YEAR = 2022  # before it, ZeRO-3's gathers reached one NIC's rate (arXiv:2104.04473 Table 2)
_NARROW_SUMS = 0.5  # of the traffic of 32-bit sums: two 16-bit reads and a write, 6 bytes of 12
_PASSES_OF_A_KERNEL = 2.5  # an element-wise kernel reads one or two tensors and writes one


@immutable
class StepInputs:
    """The inputs of a layer's or a step's time."""

    cases: Cases
    work: LayerWork
    kernels: KernelTimes
    attention: AttentionTimes
    rates: GpuRates
    links: Links
    parameters: Parameters


@immutable
class LayerTime:
    """Seconds by cause, forward and backward together, and separate totals of both for the schedules."""

    matmul_s: Array
    attention_s: Array
    elementwise_s: Array
    recompute_s: Array
    tensor_parallel_s: Array
    context_parallel_s: Array
    expert_parallel_s: Array
    sharding_s: Array
    host_s: Array
    offload_s: Array
    forward_s: Array
    backward_s: Array

    @property
    def causes(self) -> dict[str, Array]:
        """The causes; they sum to forward plus backward."""
        sums = ("forward_s", "backward_s")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in sums}


@immutable
class _GpuTime:
    """The GPU's own work in one direction."""

    matmul: Array
    attention: Array
    elementwise: Array

    @property
    def total(self) -> Array:
        return np.asarray(self.matmul + self.attention + self.elementwise)

    def share(self, shares: "_GpuTime") -> Array:
        """Seconds of the given shares of each part."""
        return np.asarray(
            self.matmul * shares.matmul
            + self.attention * shares.attention
            + self.elementwise * shares.elementwise
        )


def compiled(cases: Cases) -> Array:
    """True where element-wise work is fused by a compiler."""
    stated = cases.workload.compile == 1
    return np.asarray(stated | (cases.framework.kernels == KernelStyle.COMPILED))


def forward_passes(cases: Cases) -> Array:
    """Forward passes of a micro-batch: a frozen reference model makes one as long as the trained model's."""
    return np.asarray(1.0 + cases.workload.reference_model)


def layer_time(inputs: StepInputs) -> LayerTime:
    """The seconds of an average layer for one micro-batch, a reference model's too."""
    forward, passes = _forward(inputs), forward_passes(inputs.cases)
    backward = _backward(inputs, forward)
    recomputed = _recomputed_shares(inputs.cases)
    recompute = recomputed.share(forward)
    tp, cp, ep = _collectives(inputs, forward)
    repeats = np.where(recomputed.matmul > 0.99, 1.0, 0.0)
    gpu_f = forward.total + tp + cp + ep
    tp_b = tp * _backward_exposed(inputs)
    gpu_b = backward.total + recompute + tp_b + 2 * cp + ep + repeats * (tp + cp + ep)
    host_f, host_b = launches_s(inputs.cases, inputs.parameters, recomputed.matmul)
    wait_f = _added_wait(gpu_f, host_f, 4)  # short kernels wait first
    wait_f = wait_f + expert_wait_s(inputs.cases, inputs.work.dense_share, inputs.parameters)
    wait_b = _added_wait(gpu_b, host_b, 4)
    gather, scatter = _sharded(inputs)
    exposed = inputs.parameters.sharding_exposed
    shard_f = _exposed(gpu_f + wait_f, gather, exposed)
    shard_b = _exposed(gpu_b + wait_b, gather + scatter, exposed)
    weights, activations = _offload(inputs)
    busy_f, busy_b = gpu_f + wait_f, gpu_b + wait_b
    offload_f = _exposed(busy_f, weights, 0.0) + np.maximum(activations - busy_f, 0.0)
    offload_b = _exposed(busy_b, weights, 0.0) + np.maximum(activations - busy_b, 0.0)
    return LayerTime(
        matmul_s=passes * forward.matmul + backward.matmul,
        attention_s=passes * forward.attention + backward.attention,
        elementwise_s=passes * forward.elementwise + backward.elementwise,
        recompute_s=recompute,
        tensor_parallel_s=(passes + repeats) * tp + tp_b,
        context_parallel_s=(passes + 2 + repeats) * cp,
        expert_parallel_s=(passes + 1 + repeats) * ep,
        sharding_s=passes * shard_f + shard_b,
        host_s=passes * wait_f + wait_b,
        offload_s=passes * offload_f + offload_b,
        forward_s=passes * (gpu_f + wait_f + shard_f + offload_f),
        backward_s=gpu_b + wait_b + shard_b + offload_b,
    )


def _forward(inputs: StepInputs) -> _GpuTime:
    """Matmuls with their casts and adapters, attention, and element-wise kernels."""
    cases, work, p = inputs.cases, inputs.work, inputs.parameters
    code, memory = host_class(cases), inputs.rates.hbm_bytes_per_s
    fused = fused_experts(cases, inputs.rates)
    dense, routed = inputs.kernels.cast_bytes, inputs.kernels.expert_cast_bytes
    dense = dense - np.where(_gathers_cast(cases), BF16_BYTES * work.dense_weights, 0.0)
    cast = dense + np.where(fused, 0.0, routed)
    usual = np.where(code >= HOST_CLASSES.index("fsdp1"), p.cast_passes_torch, p.cast_passes)
    cast = usual * 0.25 * cast
    passes = _passes(cases, p, code)
    moved = passes * (work.narrow_bytes + p.wide_share * work.wide_bytes)
    moved = moved + p.permute_passes * work.routed_bytes
    extra = _dequantised_bytes(inputs) + _adapter_bytes(inputs)
    return _GpuTime(
        matmul=inputs.kernels.matmul_forward_s + (cast + extra) / memory,
        attention=inputs.attention.forward_s,
        elementwise=moved / memory + passes / _PASSES_OF_A_KERNEL * p.launch_s,
    )


def _passes(cases: Cases, p: Parameters, code: Array) -> Array:
    """Element-wise passes over the hidden states: the class's usual number, or as `compile` sets it.

    Torch's own trainers usually compile since FSDP2; without compilation they run FSDP1's kernels.
    """
    usual = p.keyed("elementwise_passes", HOST_CLASSES)
    passes = np.where(compiled(cases), np.minimum(p.elementwise_fused, usual[code]), usual[code])
    eager = (cases.workload.compile == 0) & (code == HOST_CLASSES.index("fsdp2"))
    return np.where(eager, np.maximum(passes, usual[HOST_CLASSES.index("fsdp1")]), passes)


def _backward(inputs: StepInputs, forward: _GpuTime) -> _GpuTime:
    """Both gradients of the matmuls, attention's backward, and twice the element-wise traffic."""
    kernels = inputs.kernels
    extra = (_dequantised_bytes(inputs) + _adapter_bytes(inputs)) / inputs.rates.hbm_bytes_per_s
    weights = inputs.work.dense_weights + inputs.work.expert_weights
    summed = accumulated_s(inputs, np.where(frozen(inputs.cases), 0.0, weights))
    return _GpuTime(
        matmul=kernels.matmul_input_gradient_s + kernels.matmul_weight_gradient_s + extra,
        attention=inputs.attention.backward_s,
        elementwise=2.0 * forward.elementwise + summed,
    )


def accumulated_s(inputs: StepInputs, weights: Array) -> Array:
    """Seconds to add one micro-batch's gradients of `weights` elements to the step's sums."""
    p = inputs.parameters
    framework, sixteen = inputs.cases.framework, inputs.cases.workload.precision == Precision.FP16
    sixteen_bit = np.where(sixteen, framework.gradient_bytes_fp16, framework.gradient_bytes) <= BF16_BYTES
    element_bytes = np.where(sixteen_bit, _NARROW_SUMS, 1.0) * p.accumulate_bytes
    element_bytes = np.where(fused_sums(inputs.cases), 0.0, element_bytes)
    return np.asarray(weights * element_bytes / inputs.rates.hbm_bytes_per_s)


def _dequantised_bytes(inputs: StepInputs) -> Array:
    """Bytes of QLoRA's expansion of 4-bit weights to 16 bits before each use (arXiv:2305.14314)."""
    weights = inputs.work.dense_weights + inputs.work.expert_weights
    quantised = inputs.cases.workload.method == Method.QLORA
    p, gptq = inputs.parameters, inputs.cases.workload.quantiser == Quantiser.GPTQ
    element_bytes = np.where(gptq, p.dequantise_unfused_bytes, p.dequantise_bytes)
    return np.asarray(np.where(quantised, weights, 0.0) * element_bytes)


def _adapter_bytes(inputs: StepInputs) -> Array:
    """Bytes of low-rank adapters beside frozen layers: little compute, but passes over inputs and outputs."""
    mm, p = inputs.work.matmuls, inputs.parameters
    fused = inputs.cases.framework.fuses_adapters
    passes = np.where(fused, p.adapter_passes_fused, p.adapter_passes_eager)
    touched = BF16_BYTES * (mm.count * mm.m * (mm.n + mm.k)).sum(axis=0)
    return np.asarray(np.where(frozen(inputs.cases), passes / 2 * touched, 0.0))


def _recomputed_shares(cases: Cases) -> _GpuTime:
    """The share of each forward part that backward repeats."""
    mode, layers = cases.layout.recompute, cases.layout.recompute_layers
    stage = cases.architecture.layers / cases.layout.pp
    share = np.where(layers > 0, np.minimum(layers / stage, 1.0), 1.0)
    full = np.where(mode == Recompute.FULL, share, 0.0)
    style, chosen = cases.framework.selective, mode == Recompute.SELECTIVE
    by_module = (style == SelectiveRecompute.MODULES) | (cases.framework.recomputes_expert_modules > 0)
    core = np.where(chosen & (style == SelectiveRecompute.ATTENTION_CORE) & ~by_module, 1.0, 0.0)
    ops = np.where(chosen & (style == SelectiveRecompute.OPS), 1.0, 0.0)
    modules = np.where(chosen & by_module, 1.0, 0.0)
    full = full + np.where(chosen & (style == SelectiveRecompute.BLOCKS), 0.5, 0.0)
    return _GpuTime(
        matmul=full + 0.5 * ops + 0.1 * modules,
        attention=full + core,
        elementwise=full + ops + 0.6 * modules,
    )


def _collectives(inputs: StepInputs, forward: _GpuTime) -> tuple[Array, Array, Array]:
    """Exposed seconds of one direction: tensor-parallel all-reduce, context exchange, expert dispatch."""
    cases, work, links, p = inputs.cases, inputs.work, inputs.links, inputs.parameters
    layout, framework = cases.layout, cases.framework
    exposed = _tensor_exposed(inputs)
    tp = 2.0 * exposed * ring_s(work.hidden_bytes, group(links, layout.tp), links, p, passes=2.0)
    cp = ring_s(work.kv_bytes * layout.cp, group(links, layout.cp, layout.tp), links, p)
    hidden = np.maximum(cp - forward.attention, 0.0)
    cp = np.where(framework.overlaps_context_exchange > 0, hidden, cp)
    if not np.any(cases.architecture.experts > 0):
        return tp, cp, np.zeros(())
    experts = group(links, np.maximum(layout.ep, 1), np.maximum(layout.expert_tp, 1))
    once = _once_per_domain(inputs, experts.domains)
    exposed = np.where(_hides_exchange(cases), p.expert_overlapped, p.expert_exposed)
    ep = 2.0 * exposed * all_to_all_s(work.routed_bytes, once, experts, links, p)
    return tp, cp, np.where(cases.architecture.experts > 0, ep, 0.0)


def _hides_exchange(cases: Cases) -> Array:
    """Whether the experts' exchange runs behind another micro-batch's compute."""
    layout, facts = cases.layout, cases.framework
    pairs = ((layout.pp == 1) | (layout.vpp > 1)) & (layout.recompute != Recompute.FULL)
    return np.asarray(facts.overlaps_expert_exchange & (pairs | (facts.expert_overlap_interleaves == 0)))


def _tensor_exposed(inputs: StepInputs) -> Array:
    """The share of tensor-parallel communication that is not overlapped with matmuls.

    An unknown framework in 8 or 4 bits is assumed to be TransformerEngine with overlap on. Torch's compiler
    fuses reductions with the preceding matmul, but no gather with a matmul that has a scale per row
    (pytorch/pytorch#149990).
    """
    cases, code, least = inputs.cases, host_class(inputs.cases), inputs.parameters.tensor_exposed
    engine = (cases.framework.known == 0) & (code == HOST_CLASSES.index("core")) & inputs.rates.low_precision
    overlaps = (cases.framework.overlaps_tensor_parallel > 0) | engine
    by_row = (code >= HOST_CLASSES.index("fsdp1")) & (cases.workload.scaling == ScaleGranularity.ROW)
    return np.where(overlaps, np.where(by_row, 0.5 + 0.5 * least, least), 1.0)


def _backward_exposed(inputs: StepInputs) -> Array:
    """The exposed share of tensor-parallel communication in backward, relative to forward.

    Megatron since 2022 reduces input gradients while it computes weight gradients. With sequence parallelism
    each rank keeps only its part of an input and gathers it again (half of an all-reduce's traffic,
    arXiv:2205.05198 4.2.2). Torch's recompute by operators keeps the results of reductions, not of gathers.
    """
    code, p = host_class(inputs.cases), inputs.parameters
    split = inputs.cases.layout.sequence_parallel
    core = code == HOST_CLASSES.index("core")
    year = inputs.cases.workload.library_year
    since = inputs.cases.framework.overlaps_backward_since
    overlaps = (code == HOST_CLASSES.index("megatron")) & ((year == 0) | (year >= since))
    exposed = np.where(core | overlaps, p.tensor_backward_exposed, 1.0)
    framework, mode = inputs.cases.framework, inputs.cases.layout.recompute
    ops = (mode == Recompute.SELECTIVE) & (framework.selective == SelectiveRecompute.OPS)
    kept = (framework.saves_gathered_inputs | framework.overlaps_tensor_parallel) & ~ops
    return np.asarray(exposed * np.where(split & ~kept, 1.5, 1.0))


def _once_per_domain(inputs: StepInputs, domains: Array) -> Array:
    """Bytes that leave a domain if a token goes to each other domain at most once, with uniform routing."""
    top_k = np.maximum(inputs.cases.architecture.top_k, 1)
    tokens = inputs.work.routed_bytes / top_k
    return np.asarray(tokens * (domains - 1) * (1 - (1 - 1 / np.maximum(domains, 1)) ** top_k))


def _sharded(inputs: StepInputs) -> tuple[Array, Array]:
    """Seconds to gather a layer's sharded weights and to scatter its gradients."""
    cases, links, p = inputs.cases, inputs.links, inputs.parameters
    layout, framework = cases.layout, cases.framework
    ranks = shard_ranks(cases.layout)
    on = (layout.sharding >= Sharding.ZERO3) & (ranks > 1)
    if not np.any(on):
        return np.zeros(()), np.zeros(())
    trained = np.where(frozen(cases), p.adapter_share, 1.0)
    quantised = cases.workload.method == Method.QLORA
    weight = np.where(quantised, quantised_bytes(cases), framework.weight_gather_bytes)
    weight = np.where(_gathers_cast(cases), 1.0, weight)
    dense = group(links, ranks, layout.tp)
    year = cases.workload.library_year
    early = (framework.family == "deepspeed") & (year > 0) & (year < _ZERO3_RAILS_YEAR)
    dense = replace(dense, inside=np.where(early & (dense.domains > 1), 1.0, dense.inside))
    sparse = group(links, expert_shard_ranks(cases.layout), np.maximum(layout.ep, 1))

    def move(bytes_: Array) -> Array:
        both = ring_s(inputs.work.dense_weights * bytes_, dense, links, p)
        experts = inputs.work.expert_weights
        if np.any(experts > 0):
            expert = ring_s(experts * bytes_, sparse, links, p)
            both = both + np.where(experts > 0, expert, 0.0)
        return np.where(on, both, 0.0)

    return move(weight), move(framework.gradient_reduce_bytes * trained)


def _gathers_cast(cases: Cases) -> Array:
    """True if each rank casts its shard to 8 bits before a gather; only possible with a scale per tensor."""
    workload, sharded = cases.workload, cases.layout.sharding >= Sharding.ZERO3
    eight = (workload.precision == Precision.FP8) & (workload.scaling == ScaleGranularity.TENSOR)
    return np.asarray((cases.framework.gathers_fp8_weights > 0) & sharded & eight)


def _exposed(compute_s: Array, traffic_s: Array, share: float) -> Array:
    if not np.any(traffic_s):
        return np.zeros(())
    overlappable_s = (1 - share) * traffic_s
    return np.asarray(share * traffic_s + _added_wait(compute_s, overlappable_s, 3))


def _added_wait(first_s: Array, second_s: Array, power: int) -> Array:
    """Seconds that a smooth maximum of both adds to the first."""
    top = np.maximum(np.maximum(first_s, second_s), 1e-12)
    low = np.minimum(first_s, second_s) / top
    return np.asarray(top * (1 + low**power) ** (1 / power) - first_s)


def host_link_bytes_per_s(cases: Cases, parameters: Parameters) -> Array:
    """The rate that one GPU reaches to or from host memory."""
    line = np.where(superchip(cases), _C2C_BYTES_PER_S, cases.gpu.pcie_bytes_per_s)
    return np.asarray(np.maximum(line, 1e9) * parameters.host_link_fraction)


def _offload(inputs: StepInputs) -> tuple[Array, Array]:
    """Seconds to load a layer's offloaded weights and to move its activations over the host link.

    Activations are offloaded by choice, as many as the link can hide: what outlasts the layer is exposed.
    """
    cases, work = inputs.cases, inputs.work
    host_link = host_link_bytes_per_s(cases, inputs.parameters)
    ranks = np.where(cases.layout.sharding >= Sharding.ZERO3, shard_ranks(cases.layout), 1)
    weight = np.where(cases.workload.method == Method.QLORA, quantised_bytes(cases), 2.0)
    moved = (work.dense_weights + work.expert_weights) * weight / ranks
    weights = np.where((cases.layout.offload & int(Offload.PARAMETERS)) > 0, moved, 0.0)
    everything = work.wide_bytes + 8 * work.narrow_bytes
    kept = np.where(cases.layout.recompute == Recompute.FULL, work.narrow_bytes, everything)
    activations = offloaded_share(cases) * kept
    return np.asarray(weights / host_link), np.asarray(activations / host_link)
