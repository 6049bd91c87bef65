"""Predict a plan's rate at other sizes, recalibrated to the rate measured at the present size."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from rightsizer_engine.domain.columns import Array, Columns, distinct
from rightsizer_engine.domain.layout import Layout, Offload
from rightsizer_engine.estimate.evidence import layout_family, noise_ln, same_configuration
from rightsizer_engine.estimate.parameters import load_calibration, share_of_one_run
from rightsizer_engine.resize.types import JobSize
from rightsizer_engine.search.fewest import rows_on
from rightsizer_engine.search.gpu_counts import counts, thin
from rightsizer_engine.search.memory_fit import fitting
from rightsizer_engine.search.pricing.context import SearchContext, families_context
from rightsizer_engine.search.pricing.layout_space import families
from rightsizer_engine.search.pricing.options import options, price_layout
from rightsizer_engine.search.pricing.rows import Rows
from rightsizer_engine.search.selection import best
from rightsizer_engine.search.types import Option, Request

_POINTS = 12
"""GPU counts priced besides the nearest ones."""

_REACH = 8
"""Sizes from an eighth to eight times the present one: the range of one resize."""

_KEPT_IN_PLACE = (
    "tp", "pp", "vpp", "cp", "ep", "sharding", "shard_group", "micro_batch", "recompute", "offload",
)  # fmt: skip
"""Layout fields that stay the same when only the number of data-parallel ranks changes."""


def in_place_pins(layout: Layout) -> dict[str, int]:
    """Pins for a search that may change only the number of data-parallel ranks."""
    return {name: int(getattr(layout, name)) for name in _KEPT_IN_PLACE}


class PlanScaling:
    """The possible sizes of a plan's run: on each GPU count the best layout and the present layout.

    The first call of `sizes` takes as long as a search. Keep the object as long as the layout stays.
    """

    def __init__(self, *, request: Request, option: Option) -> None:
        """`option` is running; `request` is the plan's request. Deadline and budget are ignored."""
        self._option = option
        self._request = replace(
            request,
            clusters=(option.cluster,),
            deadline_s=None,
            max_usd=None,
            gpu_counts=(),
            spare_nodes=0,
        )
        self._predicted_sizes: tuple[JobSize, ...] = ()

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[JobSize, ...]:
        """The engine's rates times measured / predicted at the present size.

        Stack and model are the same at every size, so their part of the residual cancels. What remains is the
        part of a single run, and those of the configuration and of the layout family if they change. ln(rate
        / present rate) has twice their variance, plus the measurement's noise. The shares are those fitted
        for the correction of predictions.
        """
        self._predicted_sizes = self._predicted_sizes or _predicted_sizes(self._request, self._option)
        return recalibrate(
            self._predicted_sizes, self._option, gpus=gpus, tokens_per_s=tokens_per_s, steps=steps
        )


def recalibrate(
    table: Iterable[JobSize], present: Option, *, gpus: int, tokens_per_s: float, steps: int
) -> tuple[JobSize, ...]:
    """Scale predicted sizes, each with its option, by measured / predicted at the present size."""
    p, sizes = load_calibration(), tuple(table)
    if present.gpus != gpus:
        present = next((s.option for s in sizes if s.gpus == gpus and s.option), present)
    ratio = tokens_per_s / present.tokens_per_s * (present.gpus / gpus)
    noise = noise_ln(steps, p.step_scatter)
    recalibrated = []
    for size in sizes:
        assert size.option is not None  # the table is made of options
        variance_share = 0.0
        if size.option.layout != present.layout:
            other_family = _layout_family(size.option.layout) != _layout_family(present.layout)
            other_shape = not same_configuration(size.option.layout, present.layout)
            variance_share = 2.0 * (
                share_of_one_run(p)
                + (p.step_share_configuration if other_shape else 0.0)
                + (p.step_share_family if other_family else 0.0)
            )
        sigma = math.sqrt(noise**2 + variance_share * size.option.sigma**2)
        recalibrated.append(replace(size, tokens_per_s=size.tokens_per_s * ratio, sigma=sigma))
    return tuple(recalibrated)


def _layout_family(layout: Layout) -> int:
    return int(layout_family(Columns.of(layout)))


def _predicted_sizes(request: Request, present: Option) -> tuple[JobSize, ...]:
    """The sizes as the engine predicts them, the present size included."""
    priced = _price_sizes(request, present)
    chosen = [option for option in _best_options(priced) if not _same_layout(option.layout, present.layout)]
    running, _ = price_layout(request, present.layout)
    sizes = [size_from_option(option, present) for option in (*chosen, running)]
    return tuple(sorted(sizes, key=lambda s: (s.gpus, not s.in_place)))


def size_from_option(option: Option, present: Option) -> JobSize:
    """An option as a size. Goodput excludes slow steps: the measured rate already includes them."""
    return JobSize(
        gpus=option.gpus,
        tokens_per_s=option.tokens_per_s,
        goodput=option.stepping,
        sigma=option.sigma,
        in_place=_same_layout(replace(option.layout, dp=1), replace(present.layout, dp=1)),
        layout=option.layout,
        option=option,
    )


def _same_layout(a: Layout, b: Layout) -> bool:
    """Equal except for fields that follow from the number of GPUs and the batch."""
    return replace(a, micro_batches=1, expert_tp=1) == replace(b, micro_batches=1, expert_tp=1)


def _best_options(priced: tuple[SearchContext, list[Rows]]) -> tuple[Option, ...]:
    context, rows = priced
    return options([(context, row) for row in rows]) if rows else ()


def _price_sizes(request: Request, present: Option) -> tuple[SearchContext, list[Rows]]:
    """On each GPU count the best row, and the best row that differs from the present layout only in dp."""
    cluster = present.cluster
    space = families(
        request.architecture,
        request.workload,
        cluster,
        request.framework,
        pinned=_pins_of_a_resize(request, present),
    )
    context = families_context(request, cluster, space)
    allowed = _gpu_counts_near(counts(request, cluster), present.gpus)
    if not len(space) or not allowed.size:
        return context, []
    feasible, _ = fitting(context, int(allowed[-1]))
    rows = rows_on(context, allowed, feasible)
    same_but_dp = _differs_in_dp_only(rows.layout, present.layout, len(rows))
    return context, list(_best_rows(rows, same_but_dp))


def _pins_of_a_resize(request: Request, present: Option) -> dict[str, int]:
    """The user's pins without dp, which a resize changes. A running job's states stay out of host memory.

    Nobody has asked its script to move them there, and the host's memory is not known.
    """
    kept = {name: value for name, value in request.pinned.items() if name != "dp"}
    resident = {} if present.layout.offload & ~Offload.ACTIVATIONS else {"offload": int(Offload.NONE)}
    return resident | kept


def _best_rows(rows: Rows, same_but_dp: Array) -> Iterator[Rows]:
    for count in distinct(rows.gpus):
        at_count = rows.gpus == count
        first = best(rows, at_count)
        second = best(rows, at_count & same_but_dp)
        for index in {first, second} - {None}:
            yield rows.take(np.asarray([index]))


def _differs_in_dp_only(columns: Columns, layout: Layout, size: int) -> Array:
    """Rows that differ from `layout` only in fields that follow from the number of GPUs."""
    same = np.ones(size, dtype=bool)
    for name in _KEPT_IN_PLACE:
        same &= np.broadcast_to(getattr(columns, name) == int(getattr(layout, name)), same.shape)
    return same


def _gpu_counts_near(allowed: Array, gpus: int) -> Array:
    """GPU counts near the present one: evenly spread, simple ratios and the nearest counts."""
    near = allowed[(allowed * _REACH >= gpus) & (allowed <= gpus * _REACH)]
    beside = near[np.argsort(np.abs(near - gpus))[:6]]
    even = near[np.isin(near * 8, gpus * np.asarray([1, 2, 4, 6, 8, 12, 16, 32, 64]))]
    return distinct(np.concatenate([thin(near, _POINTS), beside, even]))
