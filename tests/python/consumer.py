"""A program of a user that reads every name of the face, checked by mypy --strict."""

from datetime import timedelta

import rightsizer


def interval_text(interval: rightsizer.Interval) -> str:
    return f"{interval.low:.0f} to {interval.high:.0f} s at {interval.probability:.0%}"


def step_text(step: rightsizer.Step) -> str:
    largest = max(step.seconds_by_cause, key=lambda cause: step.seconds_by_cause[cause])
    return f"{step.seconds:.1f} s ({interval_text(step.interval_seconds)}), most of it {largest}"


def plan_text(result: rightsizer.Plan | rightsizer.NoPlan) -> str:
    if isinstance(result, rightsizer.NoPlan):
        return f"{result.binding}: needs {result.needs_gpus or 'more than there are'}"
    cost = "" if result.cost_usd is None else f", {result.cost_usd:,.0f} USD"
    return f"{result.gpus} x {result.gpu_type}, tp {result.layout.tp}: {step_text(result.step)}{cost}"


def fits(estimate: rightsizer.Estimate) -> bool:
    return estimate.fit == "fits" and estimate.step.memory_gib < estimate.step.memory_limit_gib


def summary() -> str:
    try:
        result = rightsizer.plan(model="gpt2", tokens=10**9, deadline=timedelta(days=3), gpu=["H100", "A100"])
        fixed = rightsizer.estimate_layout(model="gpt2", gpu="H100", gpus=8, sharding="zero1")
    except rightsizer.Refused as error:
        return f"{error.field}: {error.value}: {error.remedy}"
    return f"{plan_text(result)}; fits: {fits(fixed)}"
