"""One prediction: time and memory of cases joined, with their uncertainty, rates and whether they fit."""

from dataclasses import dataclass

import numpy as np

from rightsizer import memory as memory_module
from rightsizer import step_time as step_time_module
from rightsizer.architecture import flop_per_token
from rightsizer.cases import Cases
from rightsizer.columns import Array, Columns
from rightsizer.memory import MEMORY_LIMIT, Memory
from rightsizer.step_time import StepTime
from rightsizer.uncertainty import memory_sigma, step_sigma
from rightsizer.workload import Method, Precision

__all__ = [
    "MEMORY_LIMIT",
    "Fit",
    "Pace",
    "Prediction",
    "fit",
    "gpus",
    "model_flop_per_token",
    "pace",
    "peak_flop_per_s",
    "predict",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What n cases take.

    `mfu` is model FLOPs (nothing recomputed, causal) over the dense peak in the job's precision. `step_sigma`
    and `memory_sigma` are standard deviations of ln(true / predicted). `fits` says that the device bytes plus
    one standard deviation stay below `memory_limit_bytes`.
    """

    step_time: StepTime
    memory: Memory
    step_s: Array
    step_sigma: Array
    memory_sigma: Array
    tokens_per_step: Array
    tokens_per_s: Array
    mfu: Array
    memory_limit_bytes: Array
    fits: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Memory alone: the cheaper half, for searches that first ask what fits at all."""

    memory: Memory
    device_bytes: Array
    sigma: Array
    limit_bytes: Array
    fits: Array


def fit(cases: Cases) -> Fit:
    """Whether every case fits: device bytes and one standard deviation within MEMORY_LIMIT of the device."""
    memory = memory_module.estimate(cases)
    sigma, device_bytes = memory_sigma(cases), memory.device_bytes
    limit = np.asarray(MEMORY_LIMIT * cases.gpu.memory_bytes)
    return Fit(
        memory=memory,
        device_bytes=device_bytes,
        sigma=sigma,
        limit_bytes=limit,
        fits=device_bytes * np.exp(sigma) <= limit,
    )


def predict(cases: Cases) -> Prediction:
    """Seconds, bytes, tokens/s, MFU and fit of every case; none is faster than the peak of its GPUs."""
    memory = fit(cases)
    speed = pace(cases)
    return Prediction(
        step_time=speed.step_time,
        memory=memory.memory,
        step_s=speed.step_s,
        step_sigma=step_sigma(cases),
        memory_sigma=memory.sigma,
        tokens_per_step=speed.tokens_per_step,
        tokens_per_s=speed.tokens_per_step / speed.step_s,
        mfu=speed.mfu,
        memory_limit_bytes=memory.limit_bytes,
        fits=memory.fits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Time alone: the step with its causes, its tokens, and the share of peak that it reaches."""

    step_time: StepTime
    step_s: Array
    tokens_per_step: Array
    mfu: Array


def pace(cases: Cases) -> Pace:
    """How fast every case is; never faster than the peak of its GPUs."""
    layout = cases.layout
    step_time = step_time_module.estimate(cases)
    sequences = np.asarray(layout.dp * layout.micro_batch * layout.micro_batches, dtype=float)
    tokens = sequences * cases.workload.sequence_tokens
    least_s = (
        tokens * model_flop_per_token(cases) / (gpus(layout) * peak_flop_per_s(cases.gpu, cases.workload))
    )
    step_s = np.maximum(step_time.total_s, least_s)
    return Pace(step_time=step_time, step_s=step_s, tokens_per_step=tokens, mfu=least_s / step_s)


def gpus(layout: Columns) -> Array:
    """World sizes."""
    return np.asarray(layout.dp * layout.tp * layout.pp * layout.cp)


def model_flop_per_token(cases: Cases) -> Array:
    """FLOPs that training must do for a token; frozen weights need no gradient of their own: a third less."""
    flop = flop_per_token(cases.architecture, cases.workload.sequence_tokens)
    frozen = np.isin(cases.workload.method, [Method.LORA, Method.QLORA])
    return np.asarray(np.where(frozen, flop * 2.0 / 3.0, flop))


def peak_flop_per_s(gpu: Columns, workload: Columns) -> Array:
    """The dense peak of one GPU in the workload's precision; 16 bits where the part lacks it (cast up)."""
    sixteen = np.maximum(gpu.bf16_flop_per_s, gpu.fp16_flop_per_s)
    single = np.maximum(gpu.tf32_flop_per_s, gpu.fp32_flop_per_s)
    precision = workload.precision
    peak = np.where(precision == Precision.FP8, gpu.fp8_flop_per_s, sixteen)
    peak = np.where(precision == Precision.NVFP4, gpu.fp4_flop_per_s, peak)
    peak = np.where(precision == Precision.FP32, single, peak)
    return np.asarray(np.where(peak > 0, peak, np.maximum(sixteen, single)))
