"""What a resize is decided from and what is decided: limits, history, a running job, sizes, a decision."""

import enum
from typing import Protocol

from rightsizer.domain.layout import Layout
from rightsizer.search.types import Option
from rightsizer.values import immutable

__all__ = [
    "Action",
    "Bottleneck",
    "Decision",
    "History",
    "Limits",
    "Mode",
    "Pressure",
    "Running",
    "Scaling",
    "Size",
]


class Mode(enum.StrEnum):
    """What may be done: nothing, a recommendation, or a resize."""

    OFF = "Off"
    RECOMMEND = "Recommend"
    AUTO = "Auto"


class Pressure(enum.StrEnum):
    """When GPUs are given back: only when someone waits for them, or always. Growing never waits for it."""

    ON_PRESSURE = "OnPressure"
    ALWAYS = "Always"


class Action(enum.StrEnum):
    """What to do: nothing; other GPU counts; another layout on the same GPUs; tell people, change nothing."""

    KEEP = "keep"
    GROW = "grow"
    SHRINK = "shrink"
    RELAYOUT = "relayout"
    FLAG = "flag"


class Bottleneck(enum.StrEnum):
    """What holds a job back, as its window shows it."""

    IDLE = "idle"
    INPUT = "input-bound"
    MEMORY = "memory-bound"
    COMMUNICATION = "communication-bound"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


@immutable
class Limits:
    """What may be done to one job, as its owner and the site say.

    `mode` is the owner's wish, `cap` the most that the site allows (namespace, partition). Sizes stay within
    `min_gpus`..`max_gpus` (None: no limit). `free_gpus` are free for it to grow into now; None: not known,
    the executor's queue decides. At most one resize in `cool_down_s`, failed ones counted.
    `checkpoint_interval_s` is the time between the job's checkpoints, None if it writes none; then nothing is
    resized. `restart_s` is from the stop to the first step of the new size; `saves_first` says that the
    executor has it save before it stops, so that no work is done twice. The first `warm_up_s` of a size, and
    windows shorter than `least_window_s`, say nothing. `others_waiting` overrides the reading's where the
    executor knows; None: as the reading says.
    """

    mode: Mode = Mode.RECOMMEND
    cap: Mode = Mode.AUTO
    min_gpus: int = 1
    max_gpus: int | None = None
    free_gpus: int | None = None
    cool_down_s: float = 3600.0
    checkpoint_interval_s: float | None = None
    restart_s: float = 600.0
    saves_first: bool = False
    warm_up_s: float = 300.0
    least_window_s: float = 600.0
    pressure: Pressure = Pressure.ON_PRESSURE
    others_waiting: bool | None = None


@immutable
class History:
    """What was done to the job before. Moments are seconds on the clock of `decide`'s `now_s`.

    `last_resize_s` is when the last resize was started, whether or not it succeeded; None: never.
    `last_good_gpus` is the last size at which it trained: where an executor returns to when a resize fails.
    `failed_gpus` are sizes that failed; they are not tried again.
    """

    last_resize_s: float | None = None
    last_good_gpus: int | None = None
    failed_gpus: tuple[int, ...] = ()


@immutable
class Size:
    """What a job could run as: so many GPUs, at `tokens_per_s` while it trains, `goodput` of the wall time.

    `sigma` is the standard deviation of ln(true / stated rate). `in_place` says that only the number of data
    parallel ranks differs from the layout that runs, so that an elastic job need not be started anew.
    `layout` and `option` are None where no engine stands behind it (a job of a trace).
    """

    gpus: int
    tokens_per_s: float
    goodput: float = 1.0
    sigma: float = 0.0
    in_place: bool = True
    layout: Layout | None = None
    option: Option | None = None


class Scaling(Protocol):
    """How a job's rate depends on its size, told what it does at the size it has."""

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[Size, ...]:
        """The sizes it could have, ascending in GPUs, the present one included, recalibrated.

        `tokens_per_s` was measured over `steps` steps on `gpus`. Several sizes of one number of GPUs differ
        in layout.
        """


@immutable
class Running:
    """A job as it runs now.

    `scaling` None: not ours, so flagged at most. `tokens_left` is to the end of the run, `deadline_left_s` to
    its deadline (negative: past; None: it has none). `trained_s` is since the first step at this size.
    """

    gpus: int
    layout: Layout | None = None
    scaling: Scaling | None = None
    tokens_left: float | None = None
    deadline_left_s: float | None = None
    confidence: float = 0.9
    trained_s: float | None = None


@immutable
class Decision:
    """What to do and why. Only where `act` is true is it to be carried out; else it is a recommendation.

    `withheld` says in words why a recommendation is not carried out (mode, nobody waits). `gpus` and `layout`
    are what the job would have then; `in_place` that an elastic job takes it without a new attempt; `option`
    the engine's figures for it. `reason` is a sentence for people, `evidence` what it rests on.
    `price_gpu_hours` is what the change costs (restart, work done again), `saves_gpu_hours` what it saves to
    the end of the run before that price (negative: it costs more, for the deadline's sake). `confidence` is
    the probability that the deadline holds with it, None without a deadline or a measurement.
    """

    action: Action
    gpus: int
    layout: Layout | None = None
    option: Option | None = None
    in_place: bool = True
    act: bool = False
    withheld: str = ""
    reason: str
    evidence: tuple[str, ...] = ()
    price_gpu_hours: float = 0.0
    saves_gpu_hours: float = 0.0
    confidence: float | None = None
    bottleneck: Bottleneck = Bottleneck.UNKNOWN
