"""Seconds of a layer's matmuls on one GPU, and of the head and the loss.

A matmul (m, n, k) on P FLOP/s and B bytes/s (smooth maximum of the two rooflines, and a launch floor):

    t = [ (2mnk / (P u w^x) (1 + k0/k))^4 + (bytes/(B r))^4 ]^(1/4) + t0

u is the generation's plateau, w the wave efficiency (the useful share of the last wave of output tiles,
best of six tile shapes; x <= 1 because split-k and stream-k kernels hide part of the loss), k0 the inner
dimension at which half of the rate is lost to prologue and epilogue. All of u, x, k0, r, t0 are fitted to
measured matmuls (bench/fit/curves.py).
"""

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns, cached_by_columns
from rightsizer_engine.domain.workload import Precision
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.work import BF16_BYTES, LayerWork, frozen, trained_ends
from rightsizer_engine.values import immutable

GENERATIONS = ("volta", "ampere", "hopper", "blackwell", "cdna", "gddr")
"""GPU generations that share curves; `gddr` are the cards without HBM, of any year."""

_NEAREST = {
    "pascal": 0, "volta": 0, "turing": 0, "ampere": 1, "ada-lovelace": 1, "ada": 1, "hopper": 2,
    "blackwell": 3, "rubin": 3, "cdna1": 4, "cdna2": 4, "cdna3": 4, "cdna4": 4,
}  # fmt: skip
_GDDR_BYTES_PER_S = 1.25e12  # no HBM part since 2020 is slower, and no GDDR6 part faster
_GDDR7_BYTES_PER_S = 2.0e12
_GA100 = 8.0  # the compute capability of A100 and A30, whose HBM is slower than GDDR7
_REFERENCE_W = (0.0, 0.0, 700.0, 1200.0, 750.0, 0.0)
"""The power of each generation's reference part (H100-SXM5, GB200, MI300X). 0: matmuls stay below it."""
_REFERENCE_16 = (1.0, 271.2 / 312.0, 794.5 / 989.4, 1822.0 / 2500.0, 668.4 / 1307.4, 1.0)
_REFERENCE_8 = (1.0, 1.0, 1402.6 / 1978.9, 3615.6 / 5000.0, 1.0, 1.0)
"""The largest matmul measured on the reference part (for Ampere A100-SXM4) over its peak: gpus.csv."""
_SM_WATTS = 3.0
_THROTTLED_EXPONENT = 0.65
"""How matmuls of a card that always meets its power limit grow with it. torch.matmul of 8,192 reaches, on an
RTX PRO 6000, 229 TFLOP/s at 300 W and 350 to 417 at 600 W (0.61 to 0.86), and on an L4 57 at 72 W (0.7
between the multiprocessors of L4 and RTX PRO 6000)."""
_SUM_BYTES = 8.0  # a weight gradient added to a 32-bit sum in the same kernel: read and written
_FUSED_SUMS_YEAR = 2022  # NVIDIA/apex#1297 (February 2022) and Megatron-LM's linear layers of that spring
_FUSED_EXPERTS_YEAR = 2026.4  # Megatron-Bridge 26.06
_GROUPED_FP8_YEAR = 2026.5  # NVIDIA/TransformerEngine#2971 and #3181: fp8 GroupedLinear on Hopper in one GEMM
_CAST_LAUNCHES = 3.0  # of an expert: its matmul, and a cast of either operand
_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
_SIDES = (64, 128, 256)


@immutable
class GpuRates:
    """Achieved rates of a GPU: FLOP/s of large matmuls in the job's precision and in 16 bits; bytes/s."""

    generation: Array
    matmul_flop_per_s: Array
    matmul16_flop_per_s: Array
    peak16_flop_per_s: Array
    half_k: Array
    half_k16: Array
    hbm_bytes_per_s: Array
    multiprocessors: Array
    low_precision: Array


@immutable
class KernelTimes:
    """Seconds on one GPU for one micro-batch through an average layer, and through the head."""

    matmul_forward_s: Array
    matmul_input_gradient_s: Array
    matmul_weight_gradient_s: Array
    cast_bytes: Array
    expert_cast_bytes: Array
    head_forward_s: Array
    head_backward_s: Array


@cached_by_columns
def generation(gpu: Columns) -> Array:
    """Index into GENERATIONS; an architecture without its own curves uses the nearest one's."""
    names, inverse = np.unique(np.atleast_1d(gpu.architecture), return_inverse=True)
    nearest = np.asarray([_NEAREST.get(str(name), 2) for name in names])
    code = nearest[inverse.reshape(np.shape(gpu.architecture))]
    limit = np.where(code == 3, _GDDR7_BYTES_PER_S, _GDDR_BYTES_PER_S)
    slow = (gpu.memory_bytes_per_s < limit) & (gpu.nvlink_bytes_per_s < 2e11) & (code != 0) & (code != 4)
    slow = slow & (gpu.compute_capability != _GA100)
    return np.asarray(np.where(slow, 5, code))


def rates(cases: Cases, parameters: Parameters) -> GpuRates:
    """The rates of each case's GPU in its precision."""
    gpu, precision = cases.gpu, cases.workload.precision
    code = generation(gpu)
    bf16 = np.where(gpu.bf16_flop_per_s > 0, gpu.bf16_flop_per_s, gpu.fp16_flop_per_s)
    sixteen = np.where(precision == Precision.FP16, np.maximum(gpu.fp16_flop_per_s, bf16), bf16)
    tf32 = np.where(gpu.tf32_flop_per_s > 0, gpu.tf32_flop_per_s, gpu.fp32_flop_per_s)
    sixteen = np.where(precision == Precision.FP32, np.where(tf32 > 0, tf32, sixteen / 8), sixteen)
    sustained = parameters.keyed("sustained", GENERATIONS)[code]
    limited = np.minimum(sixteen, _throttled(gpu, code, parameters)) * sustained
    reached, reached8 = _reached(gpu, code, bf16, parameters)
    plateau = parameters.keyed("matmul_plateau", GENERATIONS)[code]
    eight = (precision == Precision.FP8) & (gpu.fp8_flop_per_s > 0)
    four = (precision == Precision.NVFP4) & (gpu.fp4_flop_per_s > 0)
    fp8_ratio = parameters.keyed("fp8_over_bf16", GENERATIONS)[code]
    low = np.where(four, gpu.fp4_flop_per_s * parameters.fp4_over_bf16, gpu.fp8_flop_per_s * fp8_ratio)
    full = np.where(eight | four, low * limited / np.maximum(sixteen, 1.0) * reached8, limited * reached)
    limited = limited * reached
    half_k = parameters.keyed("matmul_half_k", GENERATIONS)[code]
    speed_up = np.where(eight | four, full / np.maximum(limited, 1.0), 1.0)
    sms = np.where(gpu.streaming_multiprocessors > 0, gpu.streaming_multiprocessors, 128)
    return GpuRates(
        generation=code,
        matmul_flop_per_s=np.minimum(
            full * plateau, np.where(eight, gpu.fp8_flop_per_s, np.where(four, gpu.fp4_flop_per_s, sixteen))
        ),
        matmul16_flop_per_s=np.minimum(limited * plateau, sixteen),
        peak16_flop_per_s=np.minimum(limited, sixteen),
        half_k=half_k * speed_up,
        half_k16=half_k,
        hbm_bytes_per_s=gpu.memory_bytes_per_s * parameters.keyed("hbm_fraction", GENERATIONS)[code],
        multiprocessors=sms,
        low_precision=eight | four,
    )


def _watts(gpu: Columns) -> Array:
    """The power that a GPU may draw: its own or the limit that is set, less what a superchip's CPU takes."""
    return np.asarray(np.where(gpu.power_limit_w > 0, gpu.power_limit_w, gpu.tdp_w) - gpu.host_w)


def _throttled(gpu: Columns, code: Array, parameters: Parameters) -> Array:
    """The 16-bit rate at which cards without HBM, and Turing's, meet their power limit; others: none."""
    sms = np.maximum(gpu.streaming_multiprocessors, 1.0)
    power = np.maximum(_watts(gpu), 1.0) / sms / _SM_WATTS
    rate = parameters.gddr_sm_flop_per_s * sms * power**_THROTTLED_EXPONENT
    return np.asarray(np.where((code == 5) | (gpu.architecture == "turing"), rate, np.inf))


def _reached(gpu: Columns, code: Array, peak16: Array, parameters: Parameters) -> tuple[Array, Array]:
    """A part's share of its peak over that of the generation's reference part, in 16 and in 8 bits.

    Measured where the largest matmul is (gpus.csv). Elsewhere, and below the part's own power, the rate grows
    with a power of the limit.
    """
    exponent = parameters.power_exponent
    usual, own = np.asarray(_REFERENCE_W)[code], np.maximum(gpu.tdp_w - gpu.host_w, 1.0)
    part = np.where((usual > 0) & (gpu.tdp_w > 0), own / np.maximum(usual, 1.0), 1.0) ** exponent
    best16 = gpu.matmul16_flop_per_s / np.maximum(peak16, 1.0) / np.asarray(_REFERENCE_16)[code]
    best8 = gpu.matmul8_flop_per_s / np.maximum(gpu.fp8_flop_per_s, 1.0) / np.asarray(_REFERENCE_8)[code]
    sixteen = np.where(best16 > 0, best16, part)
    limit = np.where((code == 5) | (gpu.power_limit_w <= 0), 1.0, _watts(gpu) / own) ** exponent
    return np.asarray(sixteen * limit), np.asarray(np.where(best8 > 0, best8, sixteen) * limit)


def wave_efficiency(m: Array, n: Array, multiprocessors: Array, parameters: Parameters) -> Array:
    """The useful share of the tensor cores' slots for an (m, n) output: the best of six tiles.

    Tiles of i x j come in ceil(tiles / multiprocessors) waves; a smaller tile wastes fewer slots in the last
    wave but reuses its operands less (its own efficiency).
    """
    tile_efficiencies = (
        1.0,
        1.0,
        parameters.tile_128,
        parameters.tile_64,
        parameters.tile_64,
        parameters.tile_32,
    )
    down, across = ({side: np.ceil(size / side) for side in _SIDES} for size in (m, n))
    slots: Array = np.asarray(np.inf)
    for (i, j), efficiency in zip(_TILES, tile_efficiencies, strict=True):
        waves = np.ceil(down[i] * across[j] / multiprocessors)
        slots = np.minimum(slots, waves * (i * j / efficiency))
    return np.asarray(m * n / (slots * multiprocessors))


def matmul_s(
    m: Array,
    n: Array,
    k: Array,
    *,
    flop_per_s: Array,
    half_k: Array,
    rates: GpuRates,
    parameters: Parameters,
    output_bytes: Array | float = BF16_BYTES,
) -> Array:
    """Seconds of one (m, k) x (k, n) matmul without its launch; the module's formula.

    `output_bytes` are moved for each element of the result: more if it is added to 32-bit sums.
    """
    wave = wave_efficiency(m, n, rates.multiprocessors, parameters) ** parameters.wave_exponent
    compute = 2.0 * m * n * k / (flop_per_s * wave) * (1.0 + half_k / k)
    moved = (BF16_BYTES * (m * k + k * n) + output_bytes * m * n) / rates.hbm_bytes_per_s
    return smooth_maximum(compute, moved)


def smooth_maximum(first: Array, second: Array) -> Array:
    """The fourth root of the sum of fourth powers: a smooth maximum, four times as fast as with `**`."""
    first, second = first * first, second * second
    return np.asarray(np.sqrt(np.sqrt(first * first + second * second)))


def kernels(cases: Cases, work: LayerWork, rates: GpuRates, parameters: Parameters) -> KernelTimes:
    """The seconds of every kernel class for one micro-batch."""
    mm, trained = work.matmuls, np.where(frozen(cases), 0.0, 1.0)
    eight = parameters.keyed("grouped_low_precision", GENERATIONS)[rates.generation]
    alone = rates.low_precision & ~fused_experts(cases, rates) & ~_grouped_fp8(cases, rates)
    several = np.where(alone, eight, 1.0)
    low = np.where(mm.grouped, several, 1.0)
    launches = np.where(mm.grouped & alone, _CAST_LAUNCHES, 1.0)
    fused = np.where(fused_sums(cases), _SUM_BYTES, BF16_BYTES)

    def total(m: Array, n: Array, k: Array, output_bytes: Array | float = BF16_BYTES) -> Array:
        matmul = matmul_s(
            m,
            n,
            k,
            flop_per_s=rates.matmul_flop_per_s * low,
            half_k=rates.half_k,
            rates=rates,
            parameters=parameters,
            output_bytes=output_bytes,
        )
        return np.asarray((mm.count * (matmul + launches * parameters.launch_s)).sum(axis=0))

    ends = np.where(trained_ends(cases), 1.0, 0.0)
    head_forward, head_backward = _head(work, rates, parameters, ends)
    operands = BF16_BYTES * mm.count * (mm.m * mm.k + mm.k * mm.n + mm.m * mm.n)
    expert = np.where(mm.grouped, operands, 0.0).sum(axis=0)
    return KernelTimes(
        matmul_forward_s=total(mm.m, mm.n, mm.k),
        matmul_input_gradient_s=total(mm.m, mm.k, mm.n),
        matmul_weight_gradient_s=total(mm.k, mm.n, mm.m, fused) * trained,
        cast_bytes=np.where(rates.low_precision, operands.sum(axis=0) - expert, 0.0),
        expert_cast_bytes=np.where(rates.low_precision, expert, 0.0),
        head_forward_s=head_forward,
        head_backward_s=head_backward,
    )


def _head(work: LayerWork, rates: GpuRates, parameters: Parameters, trained: Array) -> tuple[Array, Array]:
    """Seconds of the output projection, always in 16 bits: (forward, both gradients)."""
    m, n, k = work.head_shape
    options = {
        "flop_per_s": rates.matmul16_flop_per_s,
        "half_k": rates.half_k16,
        "rates": rates,
        "parameters": parameters,
    }
    forward = matmul_s(m, n, k, **options)  # type: ignore[arg-type]
    inputs = matmul_s(m, k, n, **options)  # type: ignore[arg-type]
    weights = matmul_s(k, n, m, **options)  # type: ignore[arg-type]
    return forward, inputs + trained * weights


def fused_sums(cases: Cases) -> Array:
    """True where matmuls add weight gradients to the step's sums: Megatron-like stacks since 2022."""
    year = cases.workload.library_year
    early = (year > 0) & (year < _FUSED_SUMS_YEAR)
    return np.asarray((cases.framework.fused_weight_gradients > 0) & ~early)


def fused_experts(cases: Cases, rates: GpuRates) -> Array:
    """Megatron-Core since mid-2026 casts, permutes and multiplies experts in fused kernels on Blackwell."""
    year = cases.workload.library_year
    new = ((year == 0) | (year >= _FUSED_EXPERTS_YEAR)) & (cases.framework.time_class == "core")
    blackwell = rates.generation == GENERATIONS.index("blackwell")
    return np.asarray(new & blackwell & rates.low_precision & (cases.architecture.experts > 0))


def _grouped_fp8(cases: Cases, rates: GpuRates) -> Array:
    """True where Hopper multiplies all experts in one fp8 kernel; they are still cast one by one."""
    year = cases.workload.library_year
    core = ((year == 0) | (year >= _GROUPED_FP8_YEAR)) & (cases.framework.time_class == "core")
    hopper = rates.generation == GENERATIONS.index("hopper")
    own = (cases.framework.groups_fp8_experts > 0) | core
    return np.asarray(own & hopper & rates.low_precision & (cases.architecture.experts > 0))
