"""The return values of `import rightsizer`: frozen values made from the engine's results."""

import math
from collections.abc import Mapping
from typing import Literal

from rightsizer_api import dump, reporting
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.report import LayoutReport, PlanReport
from rightsizer_engine.estimate.memory.device_memory import Verdict
from rightsizer_engine.estimate.uncertainty import Z_80
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.types import NoPlan as EngineNoPlan
from rightsizer_engine.search.types import Option
from rightsizer_engine.search.types import Plan as EnginePlan
from rightsizer_engine.values import immutable

Fit = Literal["fits", "may not fit", "does not fit"]
_GIB = 2.0**30
_FIT: dict[Verdict, Fit] = {
    Verdict.FITS: "fits",
    Verdict.TIGHT: "may not fit",
    Verdict.DOES_NOT_FIT: "does not fit",
}


class Refused(ValueError):  # noqa: N818  (the promised name)
    """A wrong argument: its name, its value, and what to do.

    `field` is the name of the argument, or the dotted path of a field of the manifest. It is empty where
    the request as a whole is refused.
    """

    def __init__(self, field: str, *, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        shown = "" if value in (None, "") else f"{value!r}: "
        super().__init__(f"{field}: {shown}{remedy}" if field else remedy)


@immutable
class Interval:
    """A prediction interval: the value is within `low` and `high` with this probability."""

    low: float
    high: float
    probability: float = 0.8


@immutable
class Step:
    """One optimizer step of the whole job: its time, its memory and its efficiency.

    `seconds` is the median prediction. `memory_gib` is what the fullest GPU holds, `memory_limit_gib` what
    it can hold. `mfu` is the share of the GPUs' peak FLOP/s that the model uses. The parts of time and memory
    by cause sum to the totals.
    """

    seconds: float
    interval_seconds: Interval
    seconds_by_cause: Mapping[str, float]
    tokens_per_second: float
    mfu: float
    memory_gib: float
    memory_limit_gib: float
    memory_gib_by_cause: Mapping[str, float]
    global_batch_sequences: int


@immutable
class Plan:
    """The fewest GPUs that meet the goal, and the layout.

    A job that may be resized starts with `gpus` and may grow to `reserve_gpus`; otherwise the two are equal.
    `finish_seconds` is the median wall time of the whole run, failures included; `finish_interval_seconds`
    its 80 % interval. `cost_usd` is None where the GPU has no price. `yaml` is the TrainingPlan that
    `rightsizer run` and `kubectl apply` take. `report` is what `rightsizer plan --json` prints, less the
    levers.
    """

    verdict: str
    gpus: int
    reserve_gpus: int
    gpu_type: str
    nodes: int
    layout: LayoutReport
    step: Step
    finish_seconds: float
    finish_interval_seconds: Interval
    cost_usd: float | None
    energy_kwh: float
    reasons: tuple[str, ...]
    yaml: str
    report: PlanReport


@immutable
class NoPlan:
    """No number of GPUs meets the goal. `binding` names the limit, `reasons` say why.

    `needs_gpus` is the fewest GPUs that would meet it; None: no number would.
    """

    verdict: str
    binding: str
    needs_gpus: int | None
    reasons: tuple[str, ...]
    yaml: str
    report: PlanReport


@immutable
class Estimate:
    """One given layout, whether it fits or not."""

    fit: Fit
    gpus: int
    gpu_type: str
    nodes: int
    layout: LayoutReport
    step: Step


def planned(result: EnginePlan | EngineNoPlan, manifest: TrainingPlan) -> Plan | NoPlan:
    """The engine's result as a Python program gets it."""
    report, text = reporting.report(result), dump(manifest)
    if isinstance(result, EngineNoPlan):
        return NoPlan(
            verdict=verdict(result),
            binding=result.binding,
            needs_gpus=result.needs_gpus,
            reasons=(result.reason,),
            yaml=text,
            report=report,
        )
    option = result.option
    return Plan(
        verdict=verdict(result),
        gpus=option.gpus,
        reserve_gpus=result.staging.reserve_gpus if result.staging else option.gpus,
        gpu_type=option.cluster.gpu.name,
        nodes=option.nodes,
        layout=reporting.layout_report(option),
        step=_step(option),
        finish_seconds=option.finish_s,
        finish_interval_seconds=Interval(low=option.finish_lo_s, high=option.finish_hi_s),
        cost_usd=option.cost_usd,
        energy_kwh=option.energy_kwh,
        reasons=tuple(result.reasons),
        yaml=text,
        report=report,
    )


def estimated(option: Option, fits: Verdict) -> Estimate:
    """A priced layout as a Python program gets it."""
    return Estimate(
        fit=_FIT[fits],
        gpus=option.gpus,
        gpu_type=option.cluster.gpu.name,
        nodes=option.nodes,
        layout=reporting.layout_report(option),
        step=_step(option),
    )


def _step(option: Option) -> Step:
    spread = math.exp(Z_80 * option.sigma)
    return Step(
        seconds=option.step_s,
        interval_seconds=Interval(low=option.step_s / spread, high=option.step_s * spread),
        seconds_by_cause=dict(option.step_by_cause_s),
        tokens_per_second=option.tokens_per_s,
        mfu=option.mfu,
        memory_gib=option.device_bytes / _GIB,
        memory_limit_gib=option.memory_limit_bytes / _GIB,
        memory_gib_by_cause={cause: size / _GIB for cause, size in option.memory_by_cause_bytes.items()},
        global_batch_sequences=option.global_batch_sequences,
    )
