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
from rightsizer.search.options import given, options
from rightsizer.search.pricing import Ground, Rows, ground, price_pairs
from rightsizer.search.search import best, counts, fitting, pairs, thin
from rightsizer.search.types import Option, Request

__all__ = ["PlanScaling", "recalibrated", "size_of"]

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
        self._table: tuple[Size, ...] = ()

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[Size, ...]:
        """The engine's rates times measured / predicted at the present size.

        The residual of a run belongs to the run: its settings, stack and model are the same at every size.
        Only what a configuration (and a family of layouts) adds of its own differs, so ln(rate / rate here)
        has the variance sigma^2 * 2 (share_configuration + share_family where the family changes), by the
        shares that the correction of predictions is fitted with, and the measurement's noise on top.
        """
        self._table = self._table or _table(self._request, self._option)
        return recalibrated(self._table, self._option, gpus=gpus, tokens_per_s=tokens_per_s, steps=steps)


def recalibrated(
    table: Iterable[Size], present: Option, *, gpus: int, tokens_per_s: float, steps: int
) -> tuple[Size, ...]:
    """Predicted sizes, each with its option, moved by measured / predicted at the present one."""
    p, sizes = load_calibration(), tuple(table)
    here = present
    if here.gpus != gpus:
        here = next((s.option for s in sizes if s.gpus == gpus and s.option), here)
    moved = tokens_per_s / here.tokens_per_s * (here.gpus / gpus)
    noise = noise_ln(steps, p.step_scatter)
    found = []
    for size in sizes:
        assert size.option is not None  # noqa: S101 - the table is made of options
        apart = 0.0
        if size.option.layout != here.layout:
            other = _family(size.option.layout) != _family(here.layout)
            apart = 2.0 * (p.step_share_configuration + (p.step_share_family if other else 0.0))
        sigma = math.sqrt(noise**2 + apart * size.option.sigma**2)
        found.append(replace(size, tokens_per_s=size.tokens_per_s * moved, sigma=sigma))
    return tuple(found)


def _family(layout: Layout) -> int:
    return int(layout_family(Columns.of(layout)))


def _table(request: Request, present: Option) -> tuple[Size, ...]:
    """As the engine predicts it, the present one included."""
    priced = _priced(request, present)
    chosen = [one for one in _options(priced) if not _same(one.layout, present.layout)]
    running, _ = given(request, present.layout)
    sizes = [size_of(one, present) for one in (*chosen, running)]
    return tuple(sorted(sizes, key=lambda s: (s.gpus, not s.in_place)))


def size_of(one: Option, present: Option) -> Size:
    """An option as a size, as predicted; `present` is what runs, its rate has stragglers and stack in it."""
    return Size(
        gpus=one.gpus,
        tokens_per_s=one.tokens_per_s,
        goodput=one.stepping,
        sigma=one.sigma,
        in_place=_same(replace(one.layout, dp=1), replace(present.layout, dp=1)),
        layout=one.layout,
        option=one,
    )


def _same(a: Layout, b: Layout) -> bool:
    """Equal but for what follows from the number of GPUs and the batch."""
    return replace(a, micro_batches=1, expert_tp=1) == replace(b, micro_batches=1, expert_tp=1)


def _options(priced: tuple[Ground, list[Rows]]) -> tuple[Option, ...]:
    some, rows = priced
    return options([(some, row) for row in rows]) if rows else ()


def _priced(request: Request, present: Option) -> tuple[Ground, list[Rows]]:
    """On each number of GPUs the best row, and the best of those that differ from the present in dp only."""
    cluster = present.cluster
    some = families(
        request.architecture, request.workload, cluster, request.framework, pinned=_free(request, present)
    )
    base = ground(request, cluster, some)
    allowed = _sizes(counts(request, cluster), present.gpus)
    if not len(some) or not allowed.size:
        return base, []
    alive, _ = fitting(base, int(allowed[-1]))
    chosen, gpus = pairs(some.unit[alive], np.zeros(alive.shape), allowed)
    rows = price_pairs(base, alive[chosen], gpus)
    like = _alike(rows.layout, present.layout, len(rows))
    return base, list(_best_rows(rows, like))


def _free(request: Request, present: Option) -> dict[str, int]:
    """The user's pins without the data-parallel size, which a resize is about."""
    return {name: value for name, value in request.pinned.items() if name != "dp"}


def _best_rows(rows: Rows, like: Array) -> Iterator[Rows]:
    for count in distinct(rows.gpus):
        here = rows.gpus == count
        first = best(rows, here)
        second = best(rows, here & like)
        for index in {first, second} - {None}:
            yield rows.take(np.asarray([index]))


def _alike(columns: Columns, layout: Layout, size: int) -> Array:
    """Rows that differ from `layout` in nothing but what the number of GPUs decides."""
    same = np.ones(size, dtype=bool)
    for name in _AXES:
        same &= np.broadcast_to(getattr(columns, name) == int(getattr(layout, name)), same.shape)
    return same


def _sizes(allowed: Array, gpus: int) -> Array:
    """Those near the present size, the very nearest among them."""
    near = allowed[(allowed * _REACH >= gpus) & (allowed <= gpus * _REACH)]
    beside = near[np.argsort(np.abs(near - gpus))[:6]]
    even = near[np.isin(near * 8, gpus * np.asarray([1, 2, 4, 6, 8, 12, 16, 32, 64]))]
    return distinct(np.concatenate([thin(near, _POINTS), beside, even]))
