"""Levers: what would need fewer GPUs or less money, or make an impossible plan possible. Each one is planned.

A lever changes one thing that the user may choose. Without a plan, and where no single change makes one
possible, changes are combined. At most MOST_VARIANTS requests are planned, without reasons or curves.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.framework_names import framework_named
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import Method, Precision
from rightsizer_engine.estimate import goodput
from rightsizer_engine.estimate.uncertainty import probability_within, quantile
from rightsizer_engine.search.opening import MEASURED_LN
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Objective, Option, Plan, Request
from rightsizer_engine.units import MOST_SECONDS, format_duration, format_usd
from rightsizer_engine.values import immutable

MOST_VARIANTS = 20
"""Most requests sized for one list of levers."""

_LEAST_WORTH = 0.03
"""Savings below this share of GPUs and money are not worth a line."""

_STACKS = ("torchtitan", "megatron", "deepspeed")
_FINETUNING_STACKS = ("accelerate", "deepspeed", "torchtitan")
_LONGER = 1.25
_LESS_SURE = 0.75
_LARGER_BATCH = 2
_MANY_SEQUENCES = 64
_GPU_TYPES = 2
_NEAR = 2
"""The cheapest size is sought up to this multiple of the plan's."""
_MOST_GPUS = 65536
_FEASIBLE_ALLOWANCE = 1.02
"""A deadline that is stated as possible leaves this much room."""


@immutable
class Lever:
    """A change, what to write for it, and the option that it leads to.

    `worth` is the larger share saved, of GPUs or money, less what the other rises by (a NoPlan: 0).
    `usd_saved` is None without a price. `later_s`: how much later the job ends, in the median.
    """

    change: str
    flag: str
    option: Option
    worth: float = 0.0
    gpus_saved: int = 0
    usd_saved: float | None = None
    later_s: float = 0.0


@immutable
class _Variant:
    change: str
    flag: str
    request: Request


def _variant(change: str, flag: str, request: Request) -> _Variant:
    return _Variant(change=change, flag=flag, request=request)


def levers(decision: Plan | NoPlan) -> tuple[Lever, ...]:
    """The levers of a decision, the largest worth first; of a NoPlan the cheapest first, and at least one."""
    if isinstance(decision, Plan):
        deadline_s, planned = decision.request.deadline_s, _planned(_single_changes(decision))
        found = [_compared(lever, decision.option, deadline_s) for lever in planned]
        worthy = (lever for lever in found if lever.worth >= _LEAST_WORTH)
        return tuple(sorted(worthy, key=lambda lever: -lever.worth))
    found = _planned([*_relaxations(decision), *_single_changes(decision)])
    found = found or _planned(_combined(decision.request))[:1]
    return tuple(sorted(found, key=_price))


def lever_text(lever: Lever) -> str:
    """Such as "fp8 (--precision fp8): 48 H100-SXM5-80GB (-16), $20,000 (-$8,000), done in 2d3h"."""
    option = lever.option
    gpus = f"{option.gpus:,} {option.cluster.gpu.name}" + _difference(
        f"{abs(lever.gpus_saved):,}", lever.gpus_saved
    )
    usd = ""
    if option.cost_usd is not None:
        saved = lever.usd_saved or 0.0
        usd = f", {format_usd(option.cost_usd)}" + _difference(format_usd(abs(saved)), saved)
    flag = f" ({lever.flag})" if lever.flag else ""
    return f"{lever.change}{flag}: {gpus}{usd}, done in {format_duration(option.finish_s)}"


def _difference(amount: str, saved: float) -> str:
    return "" if not saved else f" ({'-' if saved > 0 else '+'}{amount})"


def _planned(variants: list[_Variant] | Iterator[_Variant]) -> list[Lever]:
    """The variants that have a plan."""
    found = []
    for variant, _ in zip(variants, range(MOST_VARIANTS), strict=False):
        decision = _quick(variant.request)
        if isinstance(decision, Plan):
            found.append(Lever(change=variant.change, flag=variant.flag, option=decision.option))
    return found


def _quick(request: Request) -> Plan | NoPlan:
    return size(request, compared=False, explained=False)


def _compared(lever: Lever, chosen: Option, deadline_s: float | None) -> Lever:
    """The lever with its savings. Only money counts for another GPU type, and without a deadline."""
    option, usd, shares = lever.option, None, []
    if deadline_s is not None and option.cluster.gpu.name == chosen.cluster.gpu.name:
        shares.append(1.0 - option.gpus / chosen.gpus)
    if option.cost_usd is not None and chosen.cost_usd:
        usd = chosen.cost_usd - option.cost_usd
        shares.append(usd / chosen.cost_usd)
    return replace(
        lever,
        worth=max(shares, default=0.0) + min(0.0, *shares, 0.0),
        gpus_saved=chosen.gpus - option.gpus,
        usd_saved=usd,
        later_s=option.finish_s - chosen.finish_s,
    )


def _price(lever: Lever) -> tuple[float, int]:
    usd = lever.option.cost_usd
    return math.inf if usd is None else usd, lever.option.gpus


# --- one change at a time ----------------------------------------------------


def _single_changes(decision: Plan | NoPlan) -> Iterator[_Variant]:
    """Changes that may help a plan and a NoPlan."""
    request = decision.request
    yield from _narrower(request)
    yield from _other_stacks(request)
    yield from _goal(request)
    yield from _hardware(request)
    yield from _probe(decision)
    if isinstance(decision, Plan) and request.objective is not Objective.COST and not request.gpu_counts:
        most = min(request.max_gpus or _MOST_GPUS, _NEAR * decision.option.gpus)
        near = replace(request, objective=Objective.COST, max_gpus=most)
        yield _variant("take the cheapest size", "--objective cost", near)


def _narrower(request: Request) -> Iterator[_Variant]:
    """fp8 where the GPU and the stack train in it."""
    workload, gpus = request.workload, [cluster.gpu for cluster in request.clusters]
    if workload.precision in (Precision.BF16, Precision.FP16):
        frozen = workload.method in (Method.LORA, Method.QLORA)
        if request.framework.can_fp8 and not frozen and all(gpu.fp8_flop_per_s > 0 for gpu in gpus):
            yield _precision(request, Precision.FP8)


def _wider(request: Request) -> Iterator[_Variant]:
    """16 bits, which more GPU types have than fp8."""
    workload, gpus = request.workload, [cluster.gpu for cluster in request.clusters]
    for precision in (Precision.BF16, Precision.FP16):
        able = [getattr(gpu, f"{precision}_flop_per_s") > 0 for gpu in gpus]
        if workload.precision not in (Precision.BF16, precision) and any(able):
            yield _precision(request, precision)


def _precision(request: Request, precision: Precision) -> _Variant:
    workload = replace(request.workload, precision=precision)
    return _variant(f"train in {precision}", f"--precision {precision}", replace(request, workload=workload))


def _other_stacks(request: Request) -> Iterator[_Variant]:
    """The other frameworks that can be launched; of an assumed one only its name: the plan compared them."""
    method = request.workload.method
    for name in _STACKS if method is Method.PRETRAIN else _FINETUNING_STACKS:
        stack = _stack(name, method)
        if (stack.name == request.framework.name) is not request.framework_assumed:
            continue
        named = replace(request, framework=stack, framework_assumed=False)
        yield _variant(f"use {name}", f"--framework {name}", named)


def _stack(name: str, method: Method) -> Framework:
    adapters = method in (Method.LORA, Method.QLORA)
    return framework_named(name, adapters=adapters)


def _goal(request: Request) -> Iterator[_Variant]:
    """A larger batch, more time, less certainty, another objective."""
    workload = request.workload
    batch = workload.global_batch_sequences * _LARGER_BATCH
    yield _variant(
        "double the global batch",
        f"--global-batch {batch * workload.sequence_tokens}",
        replace(request, workload=replace(workload, global_batch_sequences=batch)),
    )
    if request.deadline_s is not None:
        longer = request.deadline_s * _LONGER
        text = f"--deadline {format_duration(longer)}"
        yield _variant("allow a quarter more time", text, replace(request, deadline_s=longer))
        if request.confidence > _LESS_SURE:
            text = f"--confidence {_LESS_SURE}"
            yield _variant("accept less certainty", text, replace(request, confidence=_LESS_SURE))


def _hardware(request: Request) -> Iterator[_Variant]:
    """Other GPU types, and the network stated."""
    if not all(cluster.inter_known for cluster in request.clusters):
        known = tuple(replace(cluster, inter_known=True) for cluster in request.clusters)
        rate = request.clusters[0].inter_bytes_per_s / 1e9
        yield _variant(
            "state the network, if it is the assumed one",
            f"--inter-node-gbps {rate:g}GB/s",
            replace(request, clusters=known),
        )
    for cluster in _other_types(request):
        name = cluster.gpu.name
        yield _variant(f"use {name}", f"--gpu {name}", replace(request, clusters=(cluster,)))


def _other_types(request: Request) -> list[Cluster]:
    """The types with at least the memory and the least money a FLOP, of the same vendor and kind of node."""
    present, first = {cluster.gpu.name for cluster in request.clusters}, request.clusters[0]
    found = []
    for gpu in lookup.gpus():
        same = (gpu.compute_capability > 0) == (first.gpu.compute_capability > 0)
        same &= (gpu.gpus_per_node > 1) == (first.gpus_per_node > 1)
        able = gpu.bf16_flop_per_s > 0 and gpu.memory_bytes >= first.gpu.memory_bytes
        if same and able and gpu.price_usd_per_gpu_h and gpu.name not in present:
            found.append((gpu.price_usd_per_gpu_h / gpu.bf16_flop_per_s, gpu.name))
    return [replace(lookup.cluster(name), max_gpus=first.max_gpus) for _, name in sorted(found)[:_GPU_TYPES]]


def _probe(decision: Plan | NoPlan) -> Iterator[_Variant]:
    """A short measured run: what is left of the deviation is what no measurement removes."""
    request = decision.request
    option = decision.option if isinstance(decision, Plan) else next(iter(decision.nearest), None)
    if request.deadline_s is None or option is None or request.confidence <= 0.5:
        return
    total_ln = math.log(option.finish_at_confidence_s / option.finish_s)
    known_ln = quantile(request.confidence) * math.hypot(goodput.stays_ln(), MEASURED_LN)
    if known_ln >= total_ln:
        return
    confidence = probability_within(quantile(request.confidence) * known_ln / total_ln)
    yield _variant(
        "measure first, if the prediction holds",
        "rightsizer probe",
        replace(request, confidence=confidence, elastic=False),
    )


# --- what makes a plan possible ----------------------------------------------


def _relaxations(refused: NoPlan) -> Iterator[_Variant]:
    """The limits of a NoPlan, each lifted as far as needed."""
    request = refused.request
    possible_s = _least_deadline_s(request)
    if possible_s is not None and possible_s < MOST_SECONDS:
        text = f"--deadline {format_duration(possible_s)}"
        yield _variant("allow more time", text, replace(request, deadline_s=possible_s))
    wide = _any_number(request)
    if wide != request:
        change, most = "allow more GPUs", refused.needs_gpus
        flag = f"--max-gpus {most}" if most and not request.gpu_counts else ""
        yield _variant(change, flag, wide)
    if request.max_usd is not None:
        cheapest = _quick(replace(request, max_usd=None, objective=Objective.COST))
        if isinstance(cheapest, Plan) and cheapest.option.cost_usd:
            usd = math.ceil(cheapest.option.cost_usd * _FEASIBLE_ALLOWANCE)
            raised = replace(request, max_usd=float(usd))
            yield _variant("raise the budget", f"--budget {usd}", raised)
    if request.pinned:
        yield _variant("drop the pinned layout", "", replace(request, pinned={}))
    yield from _wider(request)
    yield _variant("accept another global batch", "", replace(request, batch_tolerance=0.5))


def _least_deadline_s(request: Request) -> float | None:
    """A deadline that can be met: near the median of the fastest size if the job may grow, else surely."""
    timeless = replace(request, deadline_s=None, objective=Objective.TIME, elastic=False)
    fastest = None if request.deadline_s is None else _quick(timeless)
    if not isinstance(fastest, Plan) or request.deadline_s is None:
        return None
    median_s, sure_s = fastest.option.finish_s, fastest.option.finish_at_confidence_s
    for share in (0.25, 0.5) if request.elastic else ():
        between_s = median_s * math.pow(sure_s / median_s, share)
        if between_s > request.deadline_s and isinstance(
            _quick(replace(request, deadline_s=between_s)), Plan
        ):
            return between_s
    sure_s *= _FEASIBLE_ALLOWANCE
    return sure_s if sure_s > request.deadline_s else None


def _any_number(request: Request) -> Request:
    """The request on any number of GPUs, none spare."""
    clusters = tuple(replace(c, max_gpus=max(c.max_gpus, _MOST_GPUS)) for c in request.clusters)
    return replace(request, clusters=clusters, gpu_counts=(), min_gpus=1, max_gpus=None, spare_nodes=None)


def _combined(request: Request) -> Iterator[_Variant]:
    """Every limit lifted at once: on this stack, on others, and on the GPU with the most memory.

    There the batch is large enough to shard a model over many GPUs.
    """
    free = replace(
        _any_number(request),
        deadline_s=None,
        max_usd=None,
        pinned={},
        batch_tolerance=0.5,
        elastic=False,
        workload=replace(request.workload, precision=Precision.BF16),
    )
    largest = max(lookup.gpus(), key=lambda gpu: (gpu.compute_capability > 0, gpu.memory_bytes))
    roomy = replace(lookup.cluster(largest.name), max_gpus=_MOST_GPUS)
    work = free.workload
    batch = max(work.global_batch_sequences, _MANY_SEQUENCES)
    larger = f", with {batch} sequences a step" if batch > work.global_batch_sequences else ""
    on_largest = replace(free, clusters=(roomy,), workload=replace(work, global_batch_sequences=batch))
    for lifted, others in ((free, ""), (on_largest, f" on {largest.name}{larger}")):
        for name in (None, *_STACKS, "accelerate", "ddp"):
            stack = lifted.framework if name is None else _stack(name, work.method)
            change = f"lift every limit{'' if name is None else f' with {name}'}{others}"
            yield _variant(change, "", replace(lifted, framework=stack))
