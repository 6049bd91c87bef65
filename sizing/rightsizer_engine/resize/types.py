"""Inputs and output of a resize decision: limits, history, a running job, sizes; the decision."""

import enum
from typing import Protocol

from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.reading import Missing
from rightsizer_engine.search.types import Option
from rightsizer_engine.values import immutable


class Mode(enum.StrEnum):
    """The permission of the policy: nothing, recommend, or resize."""

    OFF = "Off"
    RECOMMEND = "Recommend"
    AUTO = "Auto"


class Pressure(enum.StrEnum):
    """When a job releases GPUs: only if other jobs wait for GPUs, or always. Growing ignores it."""

    ON_PRESSURE = "OnPressure"
    ALWAYS = "Always"


class Action(enum.StrEnum):
    """An action: none; change the GPU count; change the layout on the same GPUs; only notify."""

    KEEP = "keep"
    GROW = "grow"
    SHRINK = "shrink"
    RELAYOUT = "relayout"
    FLAG = "flag"


class Bottleneck(enum.StrEnum):
    """The limit of a job's speed in the measured window."""

    IDLE = "idle"
    INPUT = "input-bound"
    MEMORY = "memory-bound"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


@immutable
class Limits:
    """The limits of one job, set by its owner and the site.

    `mode` is the owner's setting, `cap` the most that the site allows (namespace, partition). Sizes stay
    within `min_gpus`..`max_gpus` (None: no limit). `free_gpus` are available for growing; None: unknown, the
    executor's queue decides. At most one resize per `cool_down_s`, failed ones included.
    `checkpoint_interval_s` is the time between checkpoints; None: the job writes none and is never resized.
    `restart_s` is the time from the stop to the first step at the new size. `saves_first`: the executor
    makes the job save before it stops, so no work is repeated. The first `warm_up_s` at a size, and windows
    shorter than `least_window_s`, are ignored. `look_s`: a staged plan may be resized for the first time
    after so much training, also where other windows are longer; None: not staged. `takes_spare`: without a
    deadline the job may take idle GPUs, and gives them back while others wait. `others_waiting` overrides the
    reading's value if not None.
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
    look_s: float | None = None
    takes_spare: bool = False
    pressure: Pressure = Pressure.ON_PRESSURE
    others_waiting: bool | None = None


@immutable
class Visit:
    """The mean rate over `steps` steps at an earlier size. `layout` as text; empty: only dp differed."""

    gpus: int
    tokens_per_s: float
    steps: int
    layout: str = ""


@immutable
class History:
    """Earlier resizes of the job. Times are seconds on the clock of `decide`'s `now_s`.

    `last_resize_s` is the start of the last resize, successful or not; None: never.
    `failed_gpus` are sizes that failed; they are not tried again. `first_gpus` is the job's first size; None:
    the present one. `visited` are measured rates, oldest first; the newest of a size holds.
    """

    last_resize_s: float | None = None
    failed_gpus: tuple[int, ...] = ()
    first_gpus: int | None = None
    visited: tuple[Visit, ...] = ()


@immutable
class JobSize:
    """One possible size of a job: `tokens_per_s` while it trains, which is `goodput` of the wall time.

    `sigma` is the standard deviation of ln(true / stated rate). `in_place`: only the number of data-parallel
    ranks differs from the running layout, so an elastic job needs no new attempt. `layout` and `option` are
    None for a job of a trace, which the engine did not size.
    """

    gpus: int
    tokens_per_s: float
    goodput: float = 1.0
    sigma: float = 0.0
    in_place: bool = True
    layout: Layout | None = None
    option: Option | None = None


class Scaling(Protocol):
    """A job's rate by its size, given the rate measured at its present size."""

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[JobSize, ...]:
        """The recalibrated sizes, ascending in GPUs, the present one included.

        `tokens_per_s` was measured over `steps` steps on `gpus`. Sizes with the same GPU count differ in
        layout.
        """


@immutable
class Running:
    """A running job.

    `scaling` None: rightsizer did not plan the job, so it is at most flagged. `tokens_left` is to the end of
    the run, `deadline_left_s` to its deadline (negative: past; None: no deadline). `trained_s` is the time
    since the first step at this size.
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
    """An action and its reason. Executors carry it out only if `act`; otherwise it is a recommendation.

    `withheld` is why a recommendation is not carried out (mode, no other job waits). `gpus` and `layout` are
    the job's new size; `in_place`: an elastic job needs no new attempt; `option`: the engine's figures.
    `reason` is a sentence for people, `missing` the absent data that it names, `evidence` the measurements
    behind it. `price_gpu_hours` is the cost of the change (restart, repeated work). `saves_gpu_hours` is what
    it saves to the end of the run before that cost; negative if meeting the deadline costs more. `confidence`
    is the probability that the deadline holds at the new size, None without a deadline or a measurement.
    """

    action: Action
    gpus: int
    layout: Layout | None = None
    option: Option | None = None
    in_place: bool = True
    act: bool = False
    withheld: str = ""
    reason: str
    missing: Missing | None = None
    evidence: tuple[str, ...] = ()
    price_gpu_hours: float = 0.0
    saves_gpu_hours: float = 0.0
    confidence: float | None = None
    bottleneck: Bottleneck = Bottleneck.UNKNOWN
