"""Converts the engine's Plan or NoPlan into a PlanReport, the document of --json and of a plan's status."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rightsizer_api.placeholders import layout_values
from rightsizer_api.report import (
    FamiliarityReport,
    Interval80,
    LayoutReport,
    Loss,
    OpeningReport,
    PlanReport,
    Runner,
)
from rightsizer_engine.search.explain import familiarity_of, probe_advice, verdict
from rightsizer_engine.search.reasons import layout_text, opening_text
from rightsizer_engine.search.types import NoPlan, Option, Plan, Request, Staging

_GIB = 2.0**30


_MOST_REASONS, _MOST_RUNNERS, _LONGEST_SENTENCE = 32, 16, 1024  # what the status schema holds


def report(decision: Plan | NoPlan) -> PlanReport:
    """A decision as a document."""
    if isinstance(decision, NoPlan):
        return PlanReport(
            feasible=False,
            verdict=_sentence(verdict(decision)),
            binding=decision.binding,
            confidence=decision.request.confidence,
            deadline_seconds=_rounded(decision.request.deadline_s),
            needs_gpus=decision.needs_gpus,
            reasons=(_sentence(decision.reason),),
            runners_up=_runners(decision.nearest),
        )
    return _plan_report(decision)


def layout_report(option: Option) -> LayoutReport:
    """An option's layout as a document."""
    values = layout_values(option.layout)
    return LayoutReport.model_validate({k: v for k, v in values.items() if k != "gpus"})


def _plan_report(plan: Plan) -> PlanReport:
    option, request = plan.option, plan.request
    return PlanReport(
        feasible=True,
        verdict=_sentence(verdict(plan)),
        binding=plan.binding,
        gpus=option.gpus,
        gpu_type=option.cluster.gpu.name,
        nodes=option.nodes,
        opening=_opening(option, plan.staging) if plan.staging else None,
        spare_nodes=option.spare_nodes,
        layout=layout_report(option),
        layout_text=layout_text(option.layout),
        finish_seconds=_rounded(option.finish_s),
        interval=Interval80(
            low_seconds=_number(option.finish_lo_s), high_seconds=_number(option.finish_hi_s)
        ),
        confidence=request.confidence,
        finish_at_confidence_seconds=_rounded(option.finish_at_confidence_s),
        deadline_seconds=_rounded(request.deadline_s),
        cost_usd=_rounded(option.cost_usd),
        energy_kwh=_rounded(option.energy_kwh),
        memory_gib=_rounded(option.device_bytes / _GIB),
        memory_limit_gib=_rounded(option.memory_limit_bytes / _GIB),
        allocated_gib=_rounded(option.allocated_bytes / _GIB),
        memory_by_cause_gib=_causes(option.memory_by_cause_bytes, _GIB),
        step_seconds=_rounded(option.step_s),
        step_by_cause_seconds=_causes(option.step_by_cause_s),
        steps=math.ceil(
            request.workload.tokens / (option.global_batch_sequences * request.workload.sequence_tokens)
        ),
        global_batch_sequences=option.global_batch_sequences,
        tokens_per_second=_rounded(option.tokens_per_s),
        mfu=_rounded(option.mfu),
        goodput=Loss(goodput=_number(option.goodput), lost_by_cause=_causes(option.lost_by_cause)),
        checkpoint_interval_seconds=_rounded(option.checkpoint_interval_s),
        familiarity=_familiarity(request, option),
        reasons=tuple(_sentence(reason) for reason in plan.reasons[:_MOST_REASONS]),
        runners_up=_runners(plan.runners_up),
    )


def _familiarity(request: Request, option: Option) -> FamiliarityReport:
    known = familiarity_of(request, option)
    texts = {"level": known.level.value, "advice": _sentence(probe_advice(request, option))}
    counts = {"evidence": _number(known.evidence), "unfamiliar": known.unfamiliar}
    return FamiliarityReport.model_validate(asdict(known) | texts | counts)


def _opening(option: Option, staging: Staging) -> OpeningReport:
    return OpeningReport.model_validate(
        {
            "text": opening_text(option, staging),
            "gpus": option.gpus,
            "look_after_seconds": _number(staging.look_s),
            "reserve_gpus": staging.reserve_gpus,
            "likely_gpus": staging.likely_gpus,
            "likely_probability": _number(staging.likely_probability),
            "deadline_probability": _number(staging.probability),
            "static_gpus": staging.static_gpus,
        }
    )


def _runners(options: Sequence[Option]) -> tuple[Runner, ...]:
    """The first few; an option that would never finish says nothing, and JSON has no infinity."""
    ending = [option for option in options if math.isfinite(option.finish_at_confidence_s)]
    return tuple(_runner(option) for option in ending[:_MOST_RUNNERS])


def _runner(option: Option) -> Runner:
    return Runner(
        gpus=option.gpus,
        gpu_type=option.cluster.gpu.name,
        nodes=option.nodes,
        layout=layout_report(option),
        layout_text=layout_text(option.layout),
        finish_seconds=_number(option.finish_s),
        finish_at_confidence_seconds=_number(option.finish_at_confidence_s),
        cost_usd=_rounded(option.cost_usd),
        memory_gib=_number(option.device_bytes / _GIB),
        step_seconds=_number(option.step_s),
    )


def _sentence(text: str) -> str:
    return text if len(text) <= _LONGEST_SENTENCE else text[: _LONGEST_SENTENCE - 3] + "..."


def _number(value: float) -> float:
    """Six significant digits: more would be noise, and differ between machines."""
    return float(f"{value:.6g}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else _number(value)


def _causes(causes: Mapping[str, float], scale: float = 1.0) -> dict[str, float]:
    return {name: _number(value / scale) for name, value in causes.items()}
