"""A plan in stages: one GPU, one node, the plan's size; each with what it must show before the next."""

import math
from statistics import NormalDist

from rightsizer_engine.estimate.cost import price_usd_per_gpu_h
from rightsizer_engine.search.types import Plan
from rightsizer_engine.units import format_bytes, format_duration, format_tokens
from rightsizer_engine.values import immutable

_LOOK_S = 1200.0
"""How long a stage trains: hundreds of steps of most jobs, a checkpoint. A guess."""
_START_S = 600.0
"""How long it takes to start. A guess."""
_UPPER = NormalDist().inv_cdf(0.9)


@immutable
class ScaleUpStage:
    """`gpus` held for `wall_s`, at `usd` (None: no price); `must_show` before the next stage starts."""

    name: str
    gpus: int
    wall_s: float
    usd: float | None
    must_show: tuple[str, ...]


def stages(plan: Plan) -> tuple[ScaleUpStage, ...]:
    """One GPU and one node where the plan has more, then the plan's size for a first look.

    The slowest step that passes is the one with which the run ends at the deadline in the median, losses
    included; without a deadline it is the 90 % point of the prediction.
    """
    option, deadline_s = plan.option, plan.request.deadline_s
    slack = math.exp(_UPPER * option.sigma) if deadline_s is None else deadline_s / option.finish_s
    rate = option.tokens_per_s / slack
    step, slowest = format_duration(option.step_s), format_duration(option.step_s * slack)
    staging = plan.staging
    beyond = () if staging is None else (f"slower: the policy takes up to {staging.reserve_gpus:,} GPUs",)
    found = (
        _stage(
            plan,
            "one GPU",
            1,
            "the script trains, with fewer layers if the model does not fit",
            "it writes a checkpoint and resumes from it",
        ),
        _stage(
            plan,
            "one node",
            option.cluster.gpus_per_node,
            f"at least {format_tokens(rate / option.gpus)} tokens/s a GPU with the plan's micro-batch",
            f"a peak of at most {format_bytes(option.memory_limit_bytes)} of GPU memory",
            "a killed worker comes back from the checkpoint",
        ),
        _stage(
            plan,
            "the plan's size",
            option.gpus,
            f"a step of at most {slowest} (predicted: {step}), that is {format_tokens(rate)} tokens/s",
            f"no longer steps with a checkpoint every {format_duration(option.checkpoint_interval_s)}",
            *beyond,
            look_s=_LOOK_S if staging is None else staging.look_s,
        ),
    )
    kept: dict[int, ScaleUpStage] = {stage.gpus: stage for stage in found if stage.gpus <= option.gpus}
    return tuple(kept.values())


def _stage(plan: Plan, name: str, gpus: int, *must_show: str, look_s: float = _LOOK_S) -> ScaleUpStage:
    price = price_usd_per_gpu_h(plan.option.cluster)
    wall_s = _START_S + look_s
    usd = None if price is None else gpus * wall_s / 3600.0 * price
    return ScaleUpStage(name=name, gpus=gpus, wall_s=wall_s, usd=usd, must_show=must_show)
