"""Measured runs as evidence: residuals of step time and memory, and which layouts are one configuration.

A residual is ln(measured / predicted) of one run.
"""

import enum

import numpy as np

from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.estimate.parameters import Parameters, load_calibration
from rightsizer_engine.values import immutable


class LayoutFamily(enum.IntEnum):
    """Kinds of layouts whose errors have a cause in common, by the most intricate parallelism in them."""

    DATA = 0
    SHARDED = 1
    TENSOR = 2
    PIPELINE = 3
    EXPERT = 4


class Quantity(enum.StrEnum):
    """The corrected quantity."""

    STEP = "step"
    MEMORY = "memory"


@immutable
class Residual:
    """`ln` is ln(measured / predicted), `sigma` the engine's deviation of it, `noise` the measurement's."""

    ln: float
    sigma: float
    noise: float


@immutable
class Evidence:
    """One measured run: what it ran on and how, for how many steps, and how far off the prediction was.

    Its start-up and its rate of writing checkpoints are 0 if they were not measured.
    """

    run: str
    framework: str
    gpu: str
    model: str
    sequence_tokens: int
    layout: Layout
    steps: int
    step: Residual | None = None
    memory: Residual | None = None
    start_s: float = 0.0
    checkpoint_bytes_per_s_per_node: float = 0.0


@immutable
class Calibration:
    """The evidence of one user's runs."""

    evidence: tuple[Evidence, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.evidence)


CONFIGURATION = ("tp", "pp", "vpp", "cp", "ep", "sharding", "micro_batch", "recompute", "offload")
"""Columns that two layouts must share to be one configuration: the work of each GPU.

Data-parallel ranks and micro-batches are not among them. Published runs that differ only in these agree as
well as runs with equal layouts (half the squared difference: 0.24 and 0.31 sigma squared).
"""


def layout_family(layout: Columns) -> Array:
    """The LayoutFamily of each layout, as codes."""
    tensor = (layout.tp > 1) | (layout.cp > 1)
    code = np.where(layout.sharding >= Sharding.ZERO3, LayoutFamily.SHARDED, LayoutFamily.DATA)
    code = np.where(tensor, LayoutFamily.TENSOR, code)
    code = np.where(layout.pp > 1, LayoutFamily.PIPELINE, code)
    return np.asarray(np.where(layout.ep > 1, LayoutFamily.EXPERT, code))


def noise_ln(steps: int, scatter: float, parameters: Parameters | None = None) -> float:
    """Standard deviation of ln(mean step time) measured over `steps` whose ln scatters by `scatter`.

    Three independent parts: the scatter over root n, the start-up (worth `step_startup` steps in
    all), and the difference between two runs of one configuration.
    """
    p = parameters or load_calibration()
    n = max(1, steps)
    return float(np.sqrt(scatter**2 / n + (p.step_startup / n) ** 2 + p.step_between_runs**2))


def same_configuration(one: Layout, other: Layout) -> bool:
    """Whether each GPU does the same in both layouts, on however many data-parallel ranks."""
    return configuration_of(one) == configuration_of(other)


def configuration_of(layout: Layout | None) -> tuple[int, ...]:
    """The values of CONFIGURATION in a layout, in its order."""
    return tuple(int(getattr(layout, name)) for name in CONFIGURATION)
