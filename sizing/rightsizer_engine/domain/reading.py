"""Measurements of one running job over one window: rates and shares, each of which may be unknown."""

import enum
import math
from dataclasses import fields, replace

from rightsizer_engine.values import immutable


class Phase(enum.StrEnum):
    """The job's phase at the end of the window, as its agent reports; UNKNOWN without a report."""

    STARTUP = "startup"
    TRAINING = "training"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    RECOVERY = "recovery"
    UNKNOWN = "unknown"

    @property
    def may_idle(self) -> bool:
        """Whether idle GPUs are expected: the job starts, saves, evaluates or recovers."""
        return self not in (Phase.TRAINING, Phase.UNKNOWN)


@immutable
class Reading:
    """One job over one window. None is unknown, never 0; a zero was measured.

    `window_s` is the length of the window that ends `age_s` seconds before now (age of the newest sample);
    `coverage` (0..1) is the share of the expected samples, `samples` their number. `gpus` are those that
    trained throughout the window; a job that was resized inside it has no one number: None. `tokens_per_s` is
    the whole job's mean over the window in phase training, checkpoint writes left out; `tokens_done` and
    `steps` count from the start of the run, `window_steps` those of the window.

    Shares are 0..1. `gpu_busy_mean` and `gpu_busy_max`: time in which any kernel ran (GR_ENGINE_ACTIVE, else
    GPU_UTIL / 100), the mean over the job's GPUs and the highest value that any GPU had at any sample.
    `tensor_active`, `memory_active` (DRAM): means. `power_fraction`: mean draw over TDP, of the busiest GPU.
    `data_wait_fraction`, `checkpoint_fraction`: of the window's wall time. `memory_used_fraction`:
    framebuffer in use on the fullest GPU, an upper bound on need. `gpu_window_s` is the window of the GPU
    metrics (GPU_METRICS) if they come from another source than the rest; None: they are of `window_s`.

    `checkpoint_age_s` is the age of the last complete checkpoint. `others_waiting`: whether jobs queue for
    GPUs of this kind. `queries` are the queries behind the figures, each with its answer, for people.
    """

    window_s: float | None = None
    gpu_window_s: float | None = None
    age_s: float | None = None
    coverage: float | None = None
    samples: int | None = None
    gpus: int | None = None
    tokens_per_s: float | None = None
    tokens_done: float | None = None
    steps: int | None = None
    window_steps: int | None = None
    gpu_busy_mean: float | None = None
    gpu_busy_max: float | None = None
    tensor_active: float | None = None
    memory_active: float | None = None
    power_fraction: float | None = None
    data_wait_fraction: float | None = None
    checkpoint_fraction: float | None = None
    memory_used_fraction: float | None = None
    phase: Phase = Phase.UNKNOWN
    checkpoint_age_s: float | None = None
    others_waiting: bool | None = None
    queries: tuple[str, ...] = ()


@immutable
class Missing:
    """Data that a decision needs and that is not there. `reason` is a clause without a full stop."""

    reason: str

    def __str__(self) -> str:
        return f"unknown: {self.reason}"


GPU_METRICS = (
    "gpu_busy_mean",
    "gpu_busy_max",
    "tensor_active",
    "memory_active",
    "power_fraction",
    "memory_used_fraction",
)
_SHARES = (
    "gpu_busy_mean",
    "gpu_busy_max",
    "tensor_active",
    "memory_active",
    "data_wait_fraction",
    "checkpoint_fraction",
    "memory_used_fraction",
    "coverage",
)
_NUMBERS = tuple(
    field.name for field in fields(Reading) if field.name not in ("phase", "others_waiting", "queries")
)

_MOST_SHARE = 1.05
"""A share a little above 1 is rounding of rates over a window; one far above is a wrong unit."""

_MOST_POWER = 1.5
"""Boost and sampling take the draw a little over TDP; more is a wrong unit. A guess."""


def cleaned(reading: Reading) -> Reading:
    """The reading with impossible values set to None: NaN, infinite, negative, shares above 1."""
    corrected: dict[str, float | None] = {}
    for name in _NUMBERS:
        value = getattr(reading, name)
        if value is None or 0 <= value <= 1:
            continue
        if not 0 <= value < math.inf:
            corrected[name] = None
        elif name in _SHARES:
            corrected[name] = 1.0 if value <= _MOST_SHARE else None
    if (reading.power_fraction or 0.0) > _MOST_POWER:
        corrected["power_fraction"] = None
    if "gpu_window_s" in corrected:
        corrected["gpu_window_s"] = 0.0  # None would claim the window of the rest
    return replace(reading, **corrected) if corrected else reading  # type: ignore[arg-type]
