"""The limits of a resize: what the plan, the site and the executor set, and the price of a restart. Pure.

The price is the median measured start, else the site's prior; the default prior is `PRIOR_RESTART_S`.
"""

import math
import statistics
from collections.abc import Sequence

from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.resize.types import Limits, Mode, Pressure, Running, Scaling
from rightsizer_engine.values import immutable

PRIOR_RESTART_S = 600.0
"""Restart time before one was measured: the engine's default. A guess: images, NCCL and large checkpoints
take minutes, and a low prior would resize jobs too eagerly."""
_LEAST_RESTART_S = 5.0
"""Resolution of the measurement; a restart is never free."""


@immutable
class Tuning:
    """A site's settings: the strongest mode, pauses, windows, and the restart price before a measurement."""

    cap: Mode = Mode.RECOMMEND
    cool_down_s: float = 3600.0
    restart_s: float = PRIOR_RESTART_S
    warm_up_s: float = 300.0
    least_window_s: float = 600.0
    pressure: Pressure = Pressure.ON_PRESSURE


def restart_s(durations_s: Sequence[float], *, prior_s: float = PRIOR_RESTART_S) -> float:
    """The restart price: the median measured start, else the prior."""
    return max(_LEAST_RESTART_S, statistics.median(durations_s)) if durations_s else prior_s


def tokens_left(target: float, done: float | None) -> float | None:
    """Tokens to the end of the run; None if the position is unknown or a number is not finite."""
    left = math.nan if done is None else target - done
    return max(0.0, left) if math.isfinite(left) else None


def seconds_left(deadline_s: float | None, *, now_s: float) -> float | None:
    """Seconds to the deadline, negative if it has passed; None without a finite deadline."""
    left_s = math.nan if deadline_s is None else deadline_s - now_s
    return left_s if math.isfinite(left_s) else None


def gpu_bounds(plan: TrainingPlan) -> tuple[int, int | None]:
    """The fewest and the most GPUs that the plan allows; a stated number is both."""
    elasticity, resources = plan.spec.elasticity, plan.spec.resources
    if resources.gpus is not None:
        return resources.gpus, resources.gpus
    return elasticity.min_gpus or resources.min_gpus, elasticity.max_gpus or resources.max_gpus


def limits_of(
    plan: TrainingPlan,
    tuning: Tuning,
    *,
    gpus: tuple[int, int | None],
    checkpoint_interval_s: float | None,
    restart_s: float,
    saves_first: bool,
    free_gpus: int | None = None,
    others_waiting: bool | None = None,
    look_s: float | None = None,
    takes_spare: bool = False,
) -> Limits:
    """The limits that the plan, the site and the executor set. `gpus` are the fewest and the most."""
    return Limits(
        mode=Mode(plan.spec.resize_mode.value),
        cap=tuning.cap,
        min_gpus=gpus[0],
        max_gpus=gpus[1],
        free_gpus=free_gpus,
        cool_down_s=tuning.cool_down_s,
        checkpoint_interval_s=checkpoint_interval_s,
        restart_s=restart_s,
        saves_first=saves_first,
        warm_up_s=tuning.warm_up_s,
        least_window_s=tuning.least_window_s,
        look_s=look_s,
        takes_spare=takes_spare,
        pressure=tuning.pressure,
        others_waiting=others_waiting,
    )


def running_of(
    plan: TrainingPlan,
    reading: Reading,
    *,
    gpus: int,
    layout: Layout,
    scaling: Scaling | None,
    target_tokens: float,
    deadline_left_s: float | None,
    trained_s: float | None,
) -> Running:
    """The job as it runs."""
    return Running(
        gpus=gpus,
        layout=layout,
        scaling=scaling,
        tokens_left=tokens_left(target_tokens, reading.tokens_done),
        deadline_left_s=deadline_left_s,
        confidence=plan.spec.deadline.confidence if plan.spec.deadline else Running(gpus=gpus).confidence,
        trained_s=trained_s,
    )
