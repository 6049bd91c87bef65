"""A decision explained: the verdict, its reasons, the runners-up and the caveats. No markup."""

import math
from collections.abc import Mapping

from rightsizer_engine.domain.familiarity import Familiarity, Level, familiarity
from rightsizer_engine.domain.workload import AttentionKernel, LossKernel, Optimizer
from rightsizer_engine.search.reasons import gpus_text, layout_text, opening_text
from rightsizer_engine.search.types import CurvePoint, NoPlan, Objective, Option, Plan, Request
from rightsizer_engine.units import format_bytes, format_duration, format_usd
from rightsizer_engine.values import immutable

_WIDE_SIGMA = 0.15


@immutable
class Explanation:
    """Plain lines without markup. `step` and `memory` hold (cause, share of the total)."""

    verdict: str
    why: tuple[str, ...]
    step: tuple[tuple[str, float], ...]
    memory: tuple[tuple[str, float], ...]
    evidence: str
    runners_up: tuple[str, ...]
    caveats: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything as lines of text, the verdict first."""
        step = ", ".join(f"{name} {share:.0%}" for name, share in self.step)
        memory = ", ".join(f"{name} {share:.0%}" for name, share in self.memory)
        parts = [f"step: {step}"] if step else []
        parts += [f"memory: {memory}"] if memory else []
        parts += [f"evidence: {self.evidence}"] if self.evidence else []
        runners = [f"alternative: {line}" for line in self.runners_up]
        return (self.verdict, *self.why, *parts, *runners, *(f"note: {line}" for line in self.caveats))


def explain(decision: Plan | NoPlan) -> Explanation:
    """Explain a plan, or why none exists."""
    if isinstance(decision, NoPlan):
        return Explanation(
            verdict=verdict(decision),
            why=(),
            step=(),
            memory=(),
            evidence="",
            runners_up=tuple(_described(o) for o in decision.nearest),
            caveats=(),
        )
    chosen = decision.option
    return Explanation(
        verdict=verdict(decision),
        why=(*_opening(decision), *decision.reasons),
        step=_shares(chosen.step_by_cause_s, chosen.step_s),
        memory=_shares(chosen.memory_by_cause_bytes, chosen.device_bytes),
        evidence=evidence_text(familiarity_of(decision.request, chosen)),
        runners_up=tuple(_compare(decision, option) for option in decision.runners_up),
        caveats=_caveats(decision),
    )


def _opening(plan: Plan) -> tuple[str, ...]:
    return (opening_text(plan.option, plan.staging),) if plan.staging else ()


def verdict(decision: Plan | NoPlan) -> str:
    """The decision in one line."""
    if isinstance(decision, NoPlan):
        return f"no plan: {decision.reason}"
    chosen = decision.option
    text = f"{gpus_text(chosen)}, {layout_text(chosen.layout)}, done in {format_duration(chosen.finish_s)}"
    text += f" (80 %: {format_duration(chosen.finish_lo_s)} to {format_duration(chosen.finish_hi_s)})"
    return text + ("" if chosen.cost_usd is None else f", {format_usd(chosen.cost_usd)}")


def _compare(plan: Plan, other: Option) -> str:
    """A rejected option and the reason."""
    return f"{_described(other)}: {_rejected(plan, other)}"


def _described(option: Option) -> str:
    price = "" if option.cost_usd is None else f", {format_usd(option.cost_usd)}"
    return (
        f"{gpus_text(option)}, {layout_text(option.layout)}, done in {format_duration(option.finish_s)}"
        f", {format_bytes(option.device_bytes)} per GPU{price}"
    )


def _rejected(plan: Plan, other: Option) -> str:
    chosen, request = plan.option, plan.request
    finish_s, odds = other.finish_at_confidence_s, f"{request.confidence:g} confidence"
    if plan.staging is not None:  # it opens with the size that is in time at even odds
        finish_s, odds = other.finish_s, "even odds"
    late = finish_s - (request.deadline_s or math.inf)
    if late > 0:
        return f"{format_duration(late)} late at {odds}"
    if (
        chosen.cost_usd is not None
        and other.cost_usd is not None
        and other.cost_usd > chosen.cost_usd * 1.005
    ):
        return f"{format_usd(other.cost_usd - chosen.cost_usd)} more"
    if other.gpus > chosen.gpus:
        return f"{other.gpus - chosen.gpus} more GPUs"
    if other.finish_s > chosen.finish_s:
        return f"{other.finish_s / chosen.finish_s - 1:.1%} slower"
    return "no simpler and less than 2 % faster"


def _shares(causes: Mapping[str, float], total: float) -> tuple[tuple[str, float], ...]:
    """Causes of at least 1 %, the largest first."""
    shares = [(name.replace("_", " "), value / max(total, 1e-12)) for name, value in causes.items()]
    return tuple(sorted((s for s in shares if s[1] >= 0.01), key=lambda s: -s[1]))


def _caveats(decision: Plan) -> tuple[str, ...]:
    chosen, request = decision.option, decision.request
    lines = []
    if request.framework_assumed:
        lines.append(f"no framework given: {request.framework.name} is assumed, so the interval is wide")
    elif not request.framework.known:
        lines.append("unknown framework: its memory and overlap are guessed, so the interval is wide")
    advice = probe_advice(request, chosen)
    if advice:
        lines.append(advice)
    elif chosen.sigma > _WIDE_SIGMA:
        lines.append(
            f"step time is uncertain by about {math.expm1(chosen.sigma):.0%}; a short run narrows it"
        )
    if network := assumed_network(chosen):
        lines.append(f"inter-node network assumed: {network}")
    if chosen.cost_usd is None:
        lines.append(f"no known price for {chosen.cluster.gpu.name}")
    return (*lines, _as_usual(request))


def larger_sizes(plan: Plan) -> tuple[CurvePoint, ...]:
    """Larger sizes for a plan without a deadline: those of the curve, each at least twice the last."""
    request, sizes, last = plan.request, list[CurvePoint](), plan.option.gpus
    if request.deadline_s is not None or request.objective is not Objective.GPUS or request.gpu_counts:
        return ()
    for point in plan.curve:
        if point.cluster == plan.option.cluster and point.gpus >= 2 * last:
            sizes.append(point)
            last = point.gpus
    return tuple(sizes)


def assumed_network(option: Option) -> str:
    """The assumed network between the option's nodes; empty on one node or if it is stated."""
    if option.nodes == 1 or option.cluster.inter_known:
        return ""
    return option.cluster.inter_link or "a typical one"


def _as_usual(request: Request) -> str:
    """The settings that the plan leaves to its framework, with their values; rows have them in `reason`."""
    work, usual = request.workload, request.framework
    taken = [f"{usual.loss} loss"] if work.loss is LossKernel.AUTO else []
    if work.attention is AttentionKernel.AUTO:
        taken.append(f"{usual.attention} attention")
    if work.compile is None:
        taken.append(f"{usual.kernels.name.lower()} kernels")
    if work.optimizer is Optimizer.ADAMW:
        taken.append(f"AdamW with moments of {usual.moment_bytes:g} bytes a parameter each")
    if work.reference_model:
        taken.append("a frozen reference model in 16 bits, kept and read as the weights are")
    taken.append("sequences of unequal length" if work.variable_length else "sequences of full length")
    return f"taken as {usual.name} usually does, unless the plan states it: {', '.join(taken)}"


def familiarity_of(request: Request, option: Option) -> Familiarity:
    """The published runs like the request, on the option's GPU, to which the engine was fitted."""
    return familiarity(request.architecture, request.workload, option.cluster.gpu, request.framework)


def evidence_text(known: Familiarity) -> str:
    """The level, the runs that share each facet, and those that share all."""
    facets = (f"{count.value}: {_runs(count.sources, count.rows)}" for count in known.facets)
    return f"{known.level}: {'; '.join(facets)}; all of these: {_runs(known.sources, known.rows)}"


def _runs(sources: int, rows: int) -> str:
    if not sources:
        return "no source"
    return f"{sources} source{'s' if sources > 1 else ''} ({rows:,} row{'s' if rows > 1 else ''})"


def probe_advice(request: Request, option: Option) -> str:
    """To measure first, where little like the request was measured and none of it by the user."""
    evidence = request.calibration.evidence if request.calibration else ()
    here = (request.framework.name, option.cluster.gpu.name)
    if any(e.step is not None and (e.framework, e.gpu) == here for e in evidence):
        return ""
    known = familiarity_of(request, option)
    strange = f" (no run: {', '.join(known.unfamiliar)})" if known.unfamiliar else ""
    if known.level is Level.NEVER:
        return f"nothing like this was ever measured{strange}: run `rightsizer probe` first"
    if known.level is Level.HARDLY:
        return f"hardly anything like this was measured{strange}: `rightsizer probe` narrows the interval"
    return ""
