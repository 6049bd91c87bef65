"""The reasons of a decision as sentences: GPU count, binding constraint and layout; or why no plan exists."""

import math

from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import Method, Optimizer, Recompute
from rightsizer_engine.estimate import goodput
from rightsizer_engine.search.types import Binding, CappedOpening, Objective, Option, Request, Staging
from rightsizer_engine.units import format_bytes, format_count, format_duration, format_usd

_FULL_MOMENT_BYTES = 4.0
_FROZEN = (Method.LORA, Method.QLORA)
_WASTE_CAUSES = {
    "pipeline_bubble": "the pipeline bubble",
    "tensor_parallel": "tensor-parallel communication",
    "context_parallel": "context-parallel communication",
    "expert_parallel": "expert-parallel communication",
    "data_parallel": "gradient synchronization",
    "sharding": "gathering sharded weights",
    "recompute": "recomputing activations",
    "host": "kernel launches on the host",
    "offload": "offloading to host memory",
    "optimizer": "the optimizer step",
    "pipeline_transfer": "transfers between pipeline stages",
}


def gpus_text(option: Option) -> str:
    """Such as "56 H100-SXM5-80GB (7 nodes)"."""
    nodes = f" ({option.nodes} nodes)" if option.nodes > 1 else ""
    return f"{option.gpus:,} {option.cluster.gpu.name}{nodes}"


def opening_text(opening: Option, staging: Staging) -> str:
    """The opening in one line: the size, when the rate is known, the likely size and the reserve."""
    return (
        f"open with {opening.gpus:,} {opening.cluster.gpu.name};"
        f" after ~{staging.look_s / 60:.0f} min of training we know;"
        f" {100 * staging.likely_probability:.0f} %: never more than {staging.likely_gpus:,};"
        f" reserve {staging.reserve_gpus:,}" + (" (limited by the GPUs allowed)" if staging.capped else "")
    )


def layout_text(layout: Layout) -> str:
    """Such as "TP 8 x PP 16 (x 4 interleaved) x DP 64, ZeRO-1, micro-batch 1, full recompute"."""
    data = {Sharding.ZERO3: "FSDP", Sharding.HSDP: "HSDP"}.get(layout.sharding, "DP")
    parts = [("TP", layout.tp), ("CP", layout.cp), ("PP", layout.pp), (data, layout.dp)]
    degrees = [f"{name} {size}" for name, size in parts if size > 1]
    if layout.vpp > 1:
        degrees = [f"{d} (x {layout.vpp} interleaved)" if d.startswith("PP ") else d for d in degrees]
    if layout.ep > 1:
        degrees.append(f"EP {layout.ep}")
    text = " x ".join(degrees) or "one GPU"
    if layout.sharding in (Sharding.ZERO1, Sharding.ZERO2):
        text += f", ZeRO-{int(layout.sharding)}"
    if layout.sharding is Sharding.HSDP:
        text += f" in groups of {layout.shard_group}"
    text += f", micro-batch {layout.micro_batch}"
    text += {Recompute.SELECTIVE: ", selective recompute", Recompute.FULL: ", full recompute"}.get(
        layout.recompute, ""
    )
    if layout.offload & Offload.PARAMETERS:
        return text + ", weights and optimizer in host memory"
    return text + (", optimizer in host memory" if layout.offload & Offload.OPTIMIZER else "")


def plan_reasons(
    request: Request,
    chosen: Option,
    *,
    fewer: Option | None,
    same: Option | None,
    bargain: Option | None = None,
    ruled_out: CappedOpening | None = None,
    other_clusters: tuple[Option, ...],
) -> tuple[str, ...]:
    """Plain sentences, the most important first."""
    why = _why_this_count(request, chosen, fewer) + _why_fixed(request, ruled_out)
    lines = [why + _not_compared(chosen, other_clusters)]
    lines += [] if bargain is None else [_trade_off(chosen, bargain)]
    lines += [_why_this_layout(chosen, same), _memory(chosen)]
    lines += [_versus(chosen, other) for other in other_clusters]
    lines += [_waste(chosen), _failures(request, chosen), _batch(request, chosen), _short_states(request)]
    lines += [calibration_text(request, chosen), *request.notes]
    return tuple(line for line in lines if line)


def calibration_text(request: Request, chosen: Option) -> str:
    """The effect of measured runs: measured over predicted, ETA with and without correction."""
    stack = (request.framework.name, chosen.cluster.gpu.name)
    evidence = request.calibration.evidence if request.calibration else ()
    if not any(e.framework == stack[0] or e.gpu == stack[1] for e in evidence):
        return ""  # no related runs, so no correction
    runs = [e for e in evidence if (e.framework, e.gpu) == stack]
    timed = [e for e in runs if e.step is not None]
    text = f"calibrated from runs of {stack[0]} or on {stack[1]}; no run has both"
    if timed:
        steps = sum(e.steps for e in timed)
        ratio = math.exp(sum(e.steps * e.step.ln for e in timed if e.step) / max(steps, 1))
        number = f"{len(timed)} run{'s' if len(timed) > 1 else ''}"
        text = f"measured {ratio:.2f} x predicted over {steps:,} steps ({number} of {stack[0]} on {stack[1]})"
    without_s = chosen.finish_s / chosen.step_correction
    return (
        f"{text}; step time corrected x {chosen.step_correction:.2f},"
        f" memory x {chosen.memory_correction:.2f};"
        f" ETA {format_duration(chosen.finish_s)}, uncorrected {format_duration(without_s)}"
    )


def no_plan_reason(
    request: Request,
    cluster: Cluster,
    binding: str,
    *,
    nearest: tuple[Option, ...],
    least_bytes: float,
    needs_gpus: int | None,
) -> str:
    """One sentence: what is needed, what is allowed, and the gap."""
    allowed = max(request.gpu_counts, default=min(cluster.max_gpus, request.max_gpus or cluster.max_gpus))
    if binding == Binding.MEMORY:
        least = format_bytes(least_bytes) if math.isfinite(least_bytes) else "more"
        fits = "fits" if least_bytes > cluster.gpu.memory_bytes else "is certain to fit"
        return (
            f"memory: no layout that {request.framework.name} supports {fits}: the smallest needs {least} per"
            f" GPU; {cluster.gpu.name} has {format_bytes(cluster.gpu.memory_bytes)},"
            f" {_limit(request, allowed)}"
        )
    if binding == Binding.LAYOUT:
        return f"layout: {request.framework.name} has no valid layout for {_pins(request)}"
    if binding == Binding.BATCH:
        return (
            f"global batch: {request.workload.global_batch_sequences} sequences do not divide evenly over"
            f" {_range(request, cluster)} {cluster.gpu.name}; change the batch or allow other GPU counts"
        )
    if binding == Binding.MAX_GPUS and request.gpu_counts and needs_gpus is None:
        return _no_such_size(request, cluster, nearest)
    if not nearest:
        return f"GPUs: no allowed GPU count in {_range(request, cluster)} for {cluster.gpu.name}"
    return _missed(request, binding, nearest[0], allowed, needs_gpus)


def _no_such_size(request: Request, cluster: Cluster, nearest: tuple[Option, ...]) -> str:
    sizes = " and ".join(f"{option.gpus:,}" for option in nearest) or "none"
    return (
        f"GPUs: {_range(request, cluster)} {cluster.gpu.name} are neither a divisor of a node of"
        f" {cluster.gpus_per_node} nor whole nodes within {cluster.max_gpus:,}; the nearest"
        f" size{'s are' if len(nearest) > 1 else ' is'} {sizes}"
    )


def _missed(request: Request, binding: str, best: Option, allowed: int, needs_gpus: int | None) -> str:
    if binding == Binding.BUDGET:
        return (
            f"budget: the cheapest plan that meets the deadline costs {_usd(best)} ({gpus_text(best)});"
            f" the limit is {format_usd(request.max_usd or 0.0)}"
        )
    late = format_duration(best.finish_at_confidence_s - (request.deadline_s or 0.0))
    closest = f"{gpus_text(best)} finish {late} late at {request.confidence:g} confidence"
    if needs_gpus is not None:
        return f"needs {needs_gpus:,} GPUs; the limit is {allowed:,}; {closest}"
    batch = request.workload.global_batch_sequences
    return f"deadline: no GPU count meets it with a global batch of {batch:,} sequences; {closest}"


_CHOSEN_BY = {
    Objective.GPUS: "no deadline given: the fewest GPUs that fit, up to half as much again as the least cost",
    Objective.COST: "objective cost: of the sizes within the limits this takes the fewest GPU-hours",
    Objective.TIME: "objective time: of the sizes within the limits this finishes first",
}


def _asked(asked: int, chosen: Option) -> str:
    if asked == chosen.gpus:
        return f"{asked:,} {'GPU was' if asked == 1 else 'GPUs were'} asked for"
    idle = asked - chosen.gpus
    return f"{asked:,} asked; {chosen.gpus:,} train, {idle:,} idle: no faster layout uses them"


def _why_this_count(request: Request, chosen: Option, fewer: Option | None) -> str:
    if request.gpu_counts:
        return _asked(max(request.gpu_counts), chosen)
    if request.objective is not Objective.GPUS or request.deadline_s is None:
        return f"{_CHOSEN_BY[request.objective]} ({_gpu_hours(chosen)} GPU-hours)"
    if fewer is None:
        return _no_fewer(chosen)
    late = fewer.finish_at_confidence_s - request.deadline_s
    step = f"{gpus_text(fewer)}, the next smaller size,"
    odds = f"{request.confidence:g} confidence"
    if request.elastic and fewer.finish_s > request.deadline_s:
        late, odds = fewer.finish_s - request.deadline_s, "even odds"
    if late > 0:
        return f"{step} would finish {format_duration(late)} late at {odds}"
    return f"{step} would exceed another limit: {_usd(fewer)}, {format_bytes(fewer.device_bytes)} per GPU"


def _why_fixed(request: Request, ruled_out: CappedOpening | None) -> str:
    if ruled_out is None:
        return ""
    return (
        f"; the size is fixed: opened with {ruled_out.gpus:,}, the job may grow to {ruled_out.reserve_gpus:,}"
        f" GPUs within the limit, and would meet the deadline with {ruled_out.probability:.1%},"
        f" not {request.confidence:.0%}"
    )


def _no_fewer(chosen: Option) -> str:
    if chosen.gpus <= 1:
        return "one GPU is enough"
    return f"fewer than {chosen.gpus} GPUs do not have enough memory or are not allowed"


def _trade_off(chosen: Option, other: Option) -> str:
    """The cost and the finish of another number of GPUs."""
    hours = [option.gpus * option.finish_s / 3600 for option in (other, chosen)]
    text = f"{gpus_text(other)}, {other.gpus / chosen.gpus - 1:+.0%}, would take {format_count(hours[0])}"
    text += f" GPU-hours instead of {format_count(hours[1])}"
    if chosen.cost_usd is not None and other.cost_usd is not None:
        text += f" ({_usd(other)} instead of {_usd(chosen)})"
    apart_s = abs(other.finish_s - chosen.finish_s)
    when = "earlier" if other.finish_s < chosen.finish_s else "later"
    return f"{text} and finish {format_duration(apart_s)} {when}: objective cost takes the cheapest"


def _why_this_layout(chosen: Option, same: Option | None) -> str:
    text = f"{layout_text(chosen.layout)} is the best layout on {chosen.gpus:,} GPUs"
    if same is None:
        return f"{text}; no other combination of parallelism fits"
    change = same.finish_s / chosen.finish_s - 1.0
    speed = f"{change:.0%} slower" if change > 0 else f"{-change:.1%} faster but more complex"
    return f"{text}; the next best combination of parallelism, {layout_text(same.layout)}, is {speed}"


def _memory(chosen: Option) -> str:
    share = chosen.device_bytes / chosen.cluster.gpu.memory_bytes
    top = max(chosen.memory_by_cause_bytes.items(), key=lambda item: item[1], default=("", 0.0))
    most = f", largest part {top[0].replace('_', ' ')}" if top[0] else ""
    away = chosen.host_bytes_per_node
    host = f", and {format_bytes(away)} of host memory on each node" if away else ""
    return f"memory: {format_bytes(chosen.device_bytes)} per GPU, {share:.0%} of the device{most}{host}"


def _versus(chosen: Option, other: Option) -> str:
    if chosen.cost_usd is not None and other.cost_usd is not None:
        return f"{gpus_text(other)} would cost {_usd(other)} instead of {_usd(chosen)}"
    return f"{gpus_text(other)} would take {_gpu_hours(other)} GPU-hours instead of {_gpu_hours(chosen)}"


def _not_compared(chosen: Option, others: tuple[Option, ...]) -> str:
    """The GPU types that the plan was not compared with by cost, as some have no price."""
    unpriced = dict.fromkeys(other.cluster.gpu.name for other in others if other.cost_usd is None)
    if not unpriced:
        return ""
    if chosen.cost_usd is None:
        return "; no price is known: GPU types are compared by GPU-hours"
    return f"; no price is known for {', '.join(unpriced)}: not compared by cost (--price states yours)"


def _waste(chosen: Option) -> str:
    """The largest overhead of the step, if it takes at least 5 %."""
    parts = {k: v for k, v in chosen.step_by_cause_s.items() if k in _WASTE_CAUSES}
    if not parts:
        return ""
    name, seconds = max(parts.items(), key=lambda item: item[1])
    share = seconds / chosen.step_s
    return f"{share:.0%} of each step goes to {_WASTE_CAUSES[name]}" if share >= 0.05 else ""


def _failures(request: Request, chosen: Option) -> str:
    rate = request.reliability
    per_day = chosen.gpus / 8 * rate.failures_per_1000_node_days / 1000.0
    expected = per_day * chosen.finish_s / 86400.0
    if expected <= 0.5:
        return ""
    spares = goodput.spare_nodes(chosen.nodes, chosen.cluster.gpus_per_node, rate)
    lost = sum(chosen.lost_by_cause[cause] for cause in ("checkpoint", "lost_work", "restart"))
    number = f"about {expected:,.0f} failure{'s' if expected >= 1.5 else ''}"
    text = (
        f"{number} expected; failures, and checkpoints every"
        f" {format_duration(chosen.checkpoint_interval_s)}, take {lost:.1%} of the time"
    )
    if request.spare_nodes is None and spares:
        text += f"; {spares} spare node{'s' if spares > 1 else ''} would avoid waiting for repairs"
    return text


def _batch(request: Request, chosen: Option) -> str:
    requested, used = request.workload.global_batch_sequences, chosen.global_batch_sequences
    if requested == used:
        return ""
    return f"global batch: {used:,} sequences instead of {requested:,} ({used / requested - 1:+.1%})"


def _short_states(request: Request) -> str:
    """A warning where the framework's optimizer states are shorter than AdamW's usual 32 bits."""
    stack, workload = request.framework, request.workload
    short = stack.moment_bytes + stack.master_bytes < _FULL_MOMENT_BYTES
    if not short or workload.optimizer is not Optimizer.ADAMW or workload.method in _FROZEN:
        return ""
    return (
        f"{stack.name} trains weights and AdamW's moments in 16 bits, as its usual script loads the model;"
        " with 32-bit weights (torch_dtype=float32) the states take twice the memory"
    )


def _gpu_hours(option: Option) -> str:
    return format_count(option.gpus * option.finish_s / 3600)


def _usd(option: Option) -> str:
    return "an unknown amount (no price)" if option.cost_usd is None else format_usd(option.cost_usd)


def _range(request: Request, cluster: Cluster) -> str:
    if request.gpu_counts:
        return ", ".join(f"{gpus:,}" for gpus in request.gpu_counts)
    most = min(cluster.max_gpus, request.max_gpus or cluster.max_gpus)
    return f"{request.min_gpus:,} to {most:,}"


def _limit(request: Request, allowed: int) -> str:
    if request.gpu_counts:
        return f"{allowed:,} GPU{'s were' if allowed > 1 else ' was'} asked for"
    return f"the limit is {allowed:,} GPUs"


def _pins(request: Request) -> str:
    pins = ", ".join(f"{name}={value}" for name, value in request.pinned.items())
    return f"the pinned layout ({pins})" if pins else "this model and batch"
