"""One prediction: time and memory of cases joined, with their uncertainty, rates and whether they fit."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rightsizer_engine.domain.cases import Cases, gather_rows
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.flop import flop_per_token
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.domain.workload import Precision
from rightsizer_engine.estimate.correction import correct
from rightsizer_engine.estimate.evidence import Calibration, Quantity
from rightsizer_engine.estimate.memory import device_memory as memory_module
from rightsizer_engine.estimate.memory.device_memory import MEMORY_LIMIT, Memory
from rightsizer_engine.estimate.parameters import load_step_time
from rightsizer_engine.estimate.step import step_time as step_time_module
from rightsizer_engine.estimate.step.inputs import StepInputs, step_inputs
from rightsizer_engine.estimate.step.layer_time import LayerTime, layer_time
from rightsizer_engine.estimate.step.step_time import StepTime
from rightsizer_engine.estimate.uncertainty import memory_sigma, step_sigma
from rightsizer_engine.estimate.work import frozen
from rightsizer_engine.values import immutable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Causes = TypeVar("Causes", bound="DataclassInstance")


@immutable
class Prediction:
    """Time, memory and uncertainty of n cases.

    `mfu` is model FLOPs (nothing recomputed, causal) over the dense peak in the job's precision. `step_sigma`
    and `memory_sigma` are standard deviations of ln(true / predicted). `fits` says that the peak
    stays below `memory_limit_bytes` with FIT_CONFIDENCE. `step_correction` and `memory_correction`
    are what measured runs multiplied the engine's own prediction by (1 without any); every figure has it
    applied.
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
    step_correction: Array
    memory_correction: Array


@immutable
class MemoryFit:
    """Memory alone: the cheaper half, for searches that first ask what fits at all."""

    memory: Memory
    device_bytes: Array
    sigma: Array
    limit_bytes: Array
    fits: Array
    correction: Array


def fit(cases: Cases, calibration: Calibration | None = None) -> MemoryFit:
    """Whether every case fits: the peak is within MEMORY_LIMIT with FIT_CONFIDENCE."""
    memory, sigma = memory_module.estimate(cases), memory_sigma(cases)
    correction = correct(calibration, cases, sigma, Quantity.MEMORY)
    if calibration:
        memory, sigma = (
            scaled(memory, correction.factor, but="context_bytes"),
            sigma * correction.sigma_factor,
        )
    device_bytes = memory.device_bytes
    limit = np.asarray(MEMORY_LIMIT * cases.gpu.memory_bytes)
    return MemoryFit(
        memory=memory,
        device_bytes=device_bytes,
        sigma=sigma,
        limit_bytes=limit,
        fits=memory_module.fits(memory, cases.gpu.memory_bytes, sigma),
        correction=correction.factor,
    )


def scaled(causes: Causes, factor: Array, *, but: str = "") -> Causes:
    """Every cause times a factor, so that they still sum to the total; the cause `but` is unchanged."""
    names = [f.name for f in fields(causes) if f.name != but]
    return replace(causes, **{name: getattr(causes, name) * factor for name in names})


def predict(cases: Cases, calibration: Calibration | None = None) -> Prediction:
    """Seconds, bytes, tokens/s, MFU and fit of every case; none is faster than the peak of its GPUs."""
    memory = fit(cases, calibration)
    speed = throughput(cases, calibration)
    return Prediction(
        step_time=speed.step_time,
        memory=memory.memory,
        step_s=speed.step_s,
        step_sigma=speed.sigma,
        memory_sigma=memory.sigma,
        tokens_per_step=speed.tokens_per_step,
        tokens_per_s=speed.tokens_per_step / speed.step_s,
        mfu=speed.mfu,
        memory_limit_bytes=memory.limit_bytes,
        fits=memory.fits,
        step_correction=speed.correction,
        memory_correction=memory.correction,
    )


@immutable
class Throughput:
    """Time alone: the step by cause and its uncertainty, its tokens, and the share of peak it reaches."""

    step_time: StepTime
    step_s: Array
    sigma: Array
    correction: Array
    tokens_per_step: Array
    mfu: Array


def throughput(cases: Cases, calibration: Calibration | None = None) -> Throughput:
    """The rates of all cases; never above the peak of their GPUs."""
    step_time, sigma = _step_time(cases), step_sigma(cases)
    correction = correct(calibration, cases, sigma, Quantity.STEP)
    if calibration:
        step_time, sigma = scaled(step_time, correction.factor), sigma * correction.sigma_factor
    tokens, least_s = tokens_and_least_s(cases)
    step_s = np.maximum(step_time.total_s, least_s)
    return Throughput(
        step_time=step_time,
        step_s=step_s,
        sigma=sigma,
        correction=correction.factor,
        tokens_per_step=tokens,
        mfu=least_s / step_s,
    )


def tokens_and_least_s(cases: Cases) -> tuple[Array, Array]:
    """Tokens of a step, and the seconds that it takes at the peak of its GPUs."""
    layout = cases.layout
    sequences = np.asarray(layout.dp * layout.micro_batch * layout.micro_batches, dtype=float)
    tokens = sequences * cases.workload.sequence_tokens
    peak = gpus(layout) * peak_flop_per_s(cases.gpu, cases.workload)
    return tokens, np.asarray(tokens * model_flop_per_token(cases) / peak)


def _step_time(cases: Cases) -> StepTime:
    """`step_time.estimate`, with an average layer priced once for each distinct one there is."""
    return step_time_module.price(*price_layers(cases))


def price_layers(cases: Cases) -> tuple[StepInputs, LayerTime]:
    """The facts of cases and the seconds of their average layers, each distinct layer priced once."""
    compact, back = cases.distinct(_layer_keys(cases.layout))
    inputs = step_inputs(compact, load_step_time())
    layer = layer_time(inputs)
    if back is None:
        return inputs, layer
    spread = {
        name: gather_rows(getattr(inputs, name), back) for name in ("work", "kernels", "rates", "links")
    }
    return replace(inputs, cases=cases, **spread), gather_rows(layer, back)


def _layer_keys(layout: Columns) -> tuple[Array, ...]:
    """All of a layout that a layer's time depends on: ranks only where they shard its weights."""
    sharded = layout.sharding >= Sharding.ZERO3
    names = ("micro_batch", "tp", "cp", "ep", "expert_tp", "sequence_parallel", "sharding", "offload")
    recomputed = ("recompute", "recompute_layers", "offload_percent")
    return (
        *(getattr(layout, name) for name in (*names, *recomputed)),
        np.where(sharded, layout.dp, 0),
        np.where(sharded, layout.shard_group, 0),
        np.where(layout.recompute_layers > 0, layout.pp, 0),
        (layout.ep > 1) & ((layout.pp == 1) | (layout.vpp > 1)),  # stages that may hide the experts' exchange
    )


def gpus(layout: Columns) -> Array:
    """World sizes."""
    return np.asarray(layout.dp * layout.tp * layout.pp * layout.cp)


def model_flop_per_token(cases: Cases) -> Array:
    """FLOPs that training must do for a token; frozen weights need no gradient of their own: a third less."""
    flop = flop_per_token(cases.architecture, cases.workload.sequence_tokens)
    return np.asarray(np.where(frozen(cases), flop * 2.0 / 3.0, flop))


def peak_flop_per_s(gpu: Columns, workload: Columns) -> Array:
    """The dense peak of one GPU in the workload's precision; 16 bits where the part lacks it (cast up)."""
    sixteen = np.maximum(gpu.bf16_flop_per_s, gpu.fp16_flop_per_s)
    single = np.maximum(gpu.tf32_flop_per_s, gpu.fp32_flop_per_s)
    precision = workload.precision
    peak = np.where(precision == Precision.FP8, gpu.fp8_flop_per_s, sixteen)
    peak = np.where(precision == Precision.NVFP4, gpu.fp4_flop_per_s, peak)
    peak = np.where(precision == Precision.FP32, single, peak)
    return np.asarray(np.where(peak > 0, peak, np.maximum(sixteen, single)))
