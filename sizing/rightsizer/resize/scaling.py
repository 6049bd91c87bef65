"""How fast a plan would run at other sizes, by the engine, told what it does at the size it has."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from rightsizer.domain.columns import Array, Columns, distinct
from rightsizer.domain.layout import Layout
from rightsizer.estimate.correction import layout_family, noise_ln
from rightsizer.estimate.parameters import load_calibration
from rightsizer.resize.types import Size
from rightsizer.search.layout_space import families
from rightsizer.search.options import options, price_layout
from rightsizer.search.pricing import Rows, SearchContext, families_context, price_pairs
from rightsizer.search.search import best, counts, fitting, pairs, thin
from rightsizer.search.types import Option, Request

__all__ = ["PlanScaling", "recalibrate", "size_from_option"]

_POINTS = 12
"""Numbers of GPUs that are priced, besides the nearest ones."""

_REACH = 8
"""Sizes from an eighth of the present one to eight times: one resize goes no farther."""

_AXES = (
    "tp", "pp", "vpp", "cp", "ep", "sharding", "shard_group", "micro_batch", "recompute", "offload",
)  # fmt: skip
"""Columns that stay when only the number of data-parallel ranks changes."""


class PlanScaling:
    """The sizes that a plan's run could have: on each number of GPUs the best layout, and the present one's.

    Priced when first asked for, which takes a search's time: keep the object as long as the layout stays.
    """

    def __init__(self, *, request: Request, option: Option) -> None:
        """`option` is what runs; `request` what it was planned for, less its deadline and budget."""
        self._option = option
        self._request = replace(
            request,
            clusters=(option.cluster,),
            deadline_s=None,
            max_usd=None,
            gpu_counts=(),
            spare_nodes=0,
        )
        self._predicted_sizes: tuple[Size, ...] = ()

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[Size, ...]:
        """The engine's rates times measured / predicted at the present size.

        The residual of a run belongs to the run: its settings, stack and model are the same at every size.
        Only what a configuration (and a family of layouts) adds of its own differs, so ln(rate / rate here)
        has the variance sigma^2 * 2 (share_configuration + share_family where the family changes), by the
        shares that the correction of predictions is fitted with, and the measurement's noise on top.
        """
        self._predicted_sizes = self._predicted_sizes or _predicted_sizes(self._request, self._option)
        return recalibrate(
            self._predicted_sizes, self._option, gpus=gpus, tokens_per_s=tokens_per_s, steps=steps
        )


def recalibrate(
    table: Iterable[Size], present: Option, *, gpus: int, tokens_per_s: float, steps: int
) -> tuple[Size, ...]:
    """Predicted sizes, each with its option, moved by measured / predicted at the present one."""
    p, sizes = load_calibration(), tuple(table)
    if present.gpus != gpus:
        present = next((s.option for s in sizes if s.gpus == gpus and s.option), present)
    ratio = tokens_per_s / present.tokens_per_s * (present.gpus / gpus)
    noise = noise_ln(steps, p.step_scatter)
    recalibrated = []
    for size in sizes:
        assert size.option is not None  # noqa: S101 - the table is made of options
        variance_share = 0.0
        if size.option.layout != present.layout:
            other_family = _layout_family(size.option.layout) != _layout_family(present.layout)
            variance_share = 2.0 * (
                p.step_share_configuration + (p.step_share_family if other_family else 0.0)
            )
        sigma = math.sqrt(noise**2 + variance_share * size.option.sigma**2)
        recalibrated.append(replace(size, tokens_per_s=size.tokens_per_s * ratio, sigma=sigma))
    return tuple(recalibrated)


def _layout_family(layout: Layout) -> int:
    return int(layout_family(Columns.of(layout)))


def _predicted_sizes(request: Request, present: Option) -> tuple[Size, ...]:
    """As the engine predicts it, the present one included."""
    priced = _price_sizes(request, present)
    chosen = [option for option in _best_options(priced) if not _same_layout(option.layout, present.layout)]
    running, _ = price_layout(request, present.layout)
    sizes = [size_from_option(option, present) for option in (*chosen, running)]
    return tuple(sorted(sizes, key=lambda s: (s.gpus, not s.in_place)))


def size_from_option(option: Option, present: Option) -> Size:
    """An option as a size, as predicted; `present` is what runs, its rate has stragglers and stack in it."""
    return Size(
        gpus=option.gpus,
        tokens_per_s=option.tokens_per_s,
        goodput=option.stepping,
        sigma=option.sigma,
        in_place=_same_layout(replace(option.layout, dp=1), replace(present.layout, dp=1)),
        layout=option.layout,
        option=option,
    )


def _same_layout(a: Layout, b: Layout) -> bool:
    """Equal but for what follows from the number of GPUs and the batch."""
    return replace(a, micro_batches=1, expert_tp=1) == replace(b, micro_batches=1, expert_tp=1)


def _best_options(priced: tuple[SearchContext, list[Rows]]) -> tuple[Option, ...]:
    context, rows = priced
    return options([(context, row) for row in rows]) if rows else ()


def _price_sizes(request: Request, present: Option) -> tuple[SearchContext, list[Rows]]:
    """On each number of GPUs the best row, and the best of those that differ from the present in dp only."""
    cluster = present.cluster
    space = families(
        request.architecture,
        request.workload,
        cluster,
        request.framework,
        pinned=_pins_without_dp(request, present),
    )
    context = families_context(request, cluster, space)
    allowed = _gpu_counts_near(counts(request, cluster), present.gpus)
    if not len(space) or not allowed.size:
        return context, []
    feasible, _ = fitting(context, int(allowed[-1]))
    chosen, gpus = pairs(space.unit[feasible], np.zeros(feasible.shape), allowed)
    rows = price_pairs(context, feasible[chosen], gpus)
    same_but_dp = _differs_in_dp_only(rows.layout, present.layout, len(rows))
    return context, list(_best_rows(rows, same_but_dp))


def _pins_without_dp(request: Request, present: Option) -> dict[str, int]:
    """The user's pins without the data-parallel size, which a resize is about."""
    return {name: value for name, value in request.pinned.items() if name != "dp"}


def _best_rows(rows: Rows, same_but_dp: Array) -> Iterator[Rows]:
    for count in distinct(rows.gpus):
        at_count = rows.gpus == count
        first = best(rows, at_count)
        second = best(rows, at_count & same_but_dp)
        for index in {first, second} - {None}:
            yield rows.take(np.asarray([index]))


def _differs_in_dp_only(columns: Columns, layout: Layout, size: int) -> Array:
    """Rows that differ from `layout` in nothing but what the number of GPUs decides."""
    same = np.ones(size, dtype=bool)
    for name in _AXES:
        same &= np.broadcast_to(getattr(columns, name) == int(getattr(layout, name)), same.shape)
    return same


def _gpu_counts_near(allowed: Array, gpus: int) -> Array:
    """Those near the present size, the very nearest among them."""
    near = allowed[(allowed * _REACH >= gpus) & (allowed <= gpus * _REACH)]
    beside = near[np.argsort(np.abs(near - gpus))[:6]]
    even = near[np.isin(near * 8, gpus * np.asarray([1, 2, 4, 6, 8, 12, 16, 32, 64]))]
    return distinct(np.concatenate([thin(near, _POINTS), beside, even]))
