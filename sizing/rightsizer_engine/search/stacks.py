"""Which framework to assume if the user names none: the one with the best plan of those that can train it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.search.objectives import FAIR_WITHIN
from rightsizer_engine.search.types import NoPlan, Objective, Option, Plan, Request
from rightsizer_engine.units import format_duration

Sizing = Callable[[Request], Plan | NoPlan]


def best_stacks_first(request: Request, size: Sizing) -> tuple[Request, ...]:
    """The request with each of its stacks that meets it as its framework, the best first, and a note.

    `size` sizes a request of one framework without reasons. The best has, at the median, the fewest GPUs
    (without a deadline: of the stacks at a fair cost), the lowest cost (also among GPU types) or the earliest
    finish, by the request's objective; how uncertain a stack is does not count. A stack that meets the
    request at the median may not at its confidence: then the next one may. If no stack meets the request, it
    is the one that finishes first on the most GPUs. Stacks of the user's own measured runs come before all
    others.
    """
    stacks = _measured(request) or request.stacks
    if len(stacks) == 1:
        return (_of(request, stacks[0]),)
    request = replace(request, stacks=stacks)
    likely = replace(request, confidence=0.5, elastic=False)
    tried = {stack: size(_of(likely, stack)) for stack in stacks}
    met = {stack: a.option for stack, a in tried.items() if isinstance(a, Plan)}
    if not met:
        return (_of(request, _fastest(request, size)),)
    ranked = sorted(met, key=_ranking(request, met))
    return tuple(_noted(request, stack, met, place) for place, stack in enumerate(ranked))


def _noted(request: Request, chosen: Framework, met: Mapping[Framework, Option], place: int) -> Request:
    others = "; ".join(_other(stack, met) for stack in request.stacks if stack is not chosen)
    which = "fastest" if place == 0 else "first that meets the request at its confidence"
    note = f"{chosen.name} is the {which} of {len(request.stacks)} stacks ({others})"
    return replace(_of(request, chosen), notes=(note, *request.notes))


def _measured(request: Request) -> tuple[Framework, ...]:
    evidence = request.calibration.evidence if request.calibration else ()
    names = {one.framework for one in evidence if one.step is not None}
    return tuple(stack for stack in request.stacks if stack.name in names)


def _of(request: Request, stack: Framework) -> Request:
    return replace(request, framework=stack, stacks=())


def _ranking(
    request: Request, met: Mapping[Framework, Option]
) -> Callable[[Framework], tuple[float, float, float]]:
    """The sort key of stacks, by the request's objective."""
    cheap = request.objective is Objective.COST or len(request.clusters) > 1
    fair = (1 + FAIR_WITHIN) * min(_paid(option) for option in met.values())

    def key(stack: Framework) -> tuple[float, float, float]:
        option = met[stack]
        if request.objective is Objective.TIME:
            return option.finish_s, option.gpus, 0.0
        if cheap:
            return _paid(option), option.finish_s, 0.0
        unfair = request.deadline_s is None and _paid(option) > fair
        return float(unfair), option.gpus, option.finish_s

    return key


def _paid(option: Option) -> float:
    """The cost, or GPU-seconds where no price is known."""
    return option.gpus * option.finish_s if option.cost_usd is None else option.cost_usd


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
    decisions = ((stack, size(_of(wide, stack))) for stack in request.stacks)
    finishes = {stack: a.option.finish_s for stack, a in decisions if isinstance(a, Plan)}
    return min(finishes, key=lambda stack: finishes[stack], default=request.stacks[0])
