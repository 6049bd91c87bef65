"""Which framework to assume if the user names none: the one with the best plan of those that can train it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from rightsizer.domain.framework import Framework
from rightsizer.search.types import NoPlan, Objective, Option, Plan, Request
from rightsizer.units import format_duration

__all__ = ["with_best_stack"]

Sizing = Callable[[Request], Plan | NoPlan]


def with_best_stack(request: Request, size: Sizing) -> Request:
    """The request with the best of its stacks as its framework, and a note that compares them.

    `size` answers a request of one framework without reasons. The best has, at the median, the fewest GPUs,
    the lowest cost (also without a deadline, and among GPU types) or the earliest finish, by the request's
    objective; how uncertain a stack is does not count. If no stack meets the request, it is the one that
    finishes first on the most GPUs. Stacks of the user's own measured runs come before all others.
    """
    stacks = _measured(request) or request.stacks
    if len(stacks) == 1:
        return _of(request, stacks[0])
    request = replace(request, stacks=stacks)
    likely = replace(request, confidence=0.5, elastic=False)
    tried = {stack: size(_of(likely, stack)) for stack in stacks}
    met = {stack: a.option for stack, a in tried.items() if isinstance(a, Plan)}
    if not met:
        return _of(request, _fastest(request, size))
    best = min(met, key=lambda stack: _rank(request, met[stack]))
    others = "; ".join(_other(stack, met) for stack in stacks if stack is not best)
    note = f"{best.name} is the fastest of {len(stacks)} stacks ({others})"
    return replace(_of(request, best), notes=(note, *request.notes))


def _measured(request: Request) -> tuple[Framework, ...]:
    evidence = request.calibration.evidence if request.calibration else ()
    names = {one.framework for one in evidence if one.step is not None}
    return tuple(stack for stack in request.stacks if stack.name in names)


def _of(request: Request, stack: Framework) -> Request:
    return replace(request, framework=stack, stacks=())


def _rank(request: Request, option: Option) -> tuple[float, float]:
    if request.objective is Objective.TIME:
        return option.finish_s, option.gpus
    cheap = request.objective is Objective.COST or request.deadline_s is None or len(request.clusters) > 1
    gpu_s = option.gpus * option.finish_s
    priced = gpu_s if option.cost_usd is None else option.cost_usd
    return (priced if cheap else option.gpus), option.finish_s


def _other(stack: Framework, met: Mapping[Framework, Option]) -> str:
    if stack not in met:
        return f"{stack.name} cannot"
    option = met[stack]
    return f"{stack.name} would need {option.gpus:,} GPUs for {format_duration(option.finish_s)}"


def _fastest(request: Request, size: Sizing) -> Framework:
    """The stack that finishes first on the most GPUs of any cluster; the first one if none fits there."""
    limits = [min(c.max_gpus, request.max_gpus or c.max_gpus) for c in request.clusters]
    wide = replace(
        request, deadline_s=None, max_usd=None, elastic=False, gpu_counts=request.gpu_counts or tuple(limits)
    )
    answers = ((stack, size(_of(wide, stack))) for stack in request.stacks)
    finishes = {stack: a.option.finish_s for stack, a in answers if isinstance(a, Plan)}
    return min(finishes, key=lambda stack: finishes[stack], default=request.stacks[0])
