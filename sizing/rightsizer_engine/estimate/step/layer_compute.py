"""Seconds of a layer's own kernels for one micro-batch: matmuls, attention and element-wise work.

Adapters, casts and dequantisation count as matmul time: they are passes over memory beside each matmul.
"""

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.framework import KernelStyle, SelectiveRecompute
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.domain.workload import Method, Precision, Quantiser, Recompute, ScaleGranularity
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.step.host_time import HOST_CLASSES, host_class
from rightsizer_engine.estimate.step.inputs import StepInputs
from rightsizer_engine.estimate.step.kernels import fused_experts, fused_sums
from rightsizer_engine.estimate.work import BF16_BYTES, frozen
from rightsizer_engine.values import immutable

_NARROW_SUMS = 0.5  # of the traffic of 32-bit sums: two 16-bit reads and a write, 6 bytes of 12
_PASSES_OF_A_KERNEL = 2.5  # an element-wise kernel reads one or two tensors and writes one

_SECOND_MATMULS = 0.5
"""Of the matmuls, by operators: torchtitan's policy saves the results of every other matmul."""
_SECOND_BLOCKS = 0.5
"""Of the blocks: every second one, torchtitan's `selective_ac_option = "2"`."""
_MODULES_MATMUL, _MODULES_ELEMENTWISE = 0.1, 0.6
"""Of the layer, by modules (Megatron's norms, activations, up-projections). Guesses, without a source."""


@immutable
class GpuTime:
    """The GPU's own work in one direction."""

    matmul: Array
    attention: Array
    elementwise: Array

    @property
    def total(self) -> Array:
        """Seconds of all three parts."""
        return np.asarray(self.matmul + self.attention + self.elementwise)

    def share(self, shares: "GpuTime") -> Array:
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


def forward_time(inputs: StepInputs) -> GpuTime:
    """Matmuls with their casts and adapters, attention, and element-wise kernels."""
    cases, work, p = inputs.cases, inputs.work, inputs.parameters
    code, memory = host_class(cases), inputs.rates.hbm_bytes_per_s
    fused = fused_experts(cases, inputs.rates)
    dense, routed = inputs.kernels.cast_bytes, inputs.kernels.expert_cast_bytes
    dense = dense - np.where(gathers_cast(cases), BF16_BYTES * work.dense_weights, 0.0)
    cast = dense + np.where(fused, 0.0, routed)
    usual = np.where(code >= HOST_CLASSES.index("fsdp1"), p.cast_passes_torch, p.cast_passes)
    cast = usual * 0.25 * cast
    passes = _passes(cases, p, code)
    moved = passes * (work.narrow_bytes + p.wide_share * work.wide_bytes)
    moved = moved + p.permute_passes * work.routed_bytes
    extra = _dequantised_bytes(inputs) + _adapter_bytes(inputs)
    return GpuTime(
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


def backward_time(inputs: StepInputs, forward: GpuTime) -> GpuTime:
    """Both gradients of the matmuls, attention's backward, and twice the element-wise traffic."""
    kernels = inputs.kernels
    extra = (_dequantised_bytes(inputs) + _adapter_bytes(inputs)) / inputs.rates.hbm_bytes_per_s
    weights = inputs.work.dense_weights + inputs.work.expert_weights
    summed = accumulated_s(inputs, np.where(frozen(inputs.cases), 0.0, weights))
    return GpuTime(
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


def recomputed_shares(cases: Cases) -> GpuTime:
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
    full = full + np.where(chosen & (style == SelectiveRecompute.BLOCKS), _SECOND_BLOCKS, 0.0)
    return GpuTime(
        matmul=full + _SECOND_MATMULS * ops + _MODULES_MATMUL * modules,
        attention=full + core,
        elementwise=full + ops + _MODULES_ELEMENTWISE * modules,
    )


def gathers_cast(cases: Cases) -> Array:
    """True if each rank casts its shard to 8 bits before a gather; only possible with a scale per tensor."""
    workload, sharded = cases.workload, cases.layout.sharding >= Sharding.ZERO3
    eight = (workload.precision == Precision.FP8) & (workload.scaling == ScaleGranularity.TENSOR)
    return np.asarray((cases.framework.gathers_fp8_weights > 0) & sharded & eight)
