"""Price many layouts of a few families: what does not depend on the number of replicas is computed once.

A search prices each family (a layout without the data-parallel size) on hundreds of GPU counts. Stages,
layers, kernels, activations and the loss are the same on all of them. Only communication between replicas,
sharded states and micro-batches differ. ZeRO-3 shards the layers too, so its rows are priced individually.

The results equal `prediction.throughput` and `prediction.fit` up to rounding, which tests check.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.estimate.correction import correct
from rightsizer_engine.estimate.evidence import Calibration, Quantity
from rightsizer_engine.estimate.memory import device_memory, per_stage
from rightsizer_engine.estimate.memory.per_stage import NO_ADAPTERS, StageMemory
from rightsizer_engine.estimate.memory.stage import stage
from rightsizer_engine.estimate.memory.states import layer_weights, state_rates, states
from rightsizer_engine.estimate.parameters import load_memory
from rightsizer_engine.estimate.prediction import price_layers, scaled, throughput, tokens_and_least_s
from rightsizer_engine.estimate.step import step_time
from rightsizer_engine.estimate.step.inputs import StepInputs
from rightsizer_engine.estimate.step.step_time import StageTimes
from rightsizer_engine.estimate.uncertainty import memory_sigma, step_sigma

_CHUNK_ROWS = 16384
"""Rows priced at once: enough to amortise a numpy call, few enough for the CPU cache."""

_MANY_REPLICAS = 2.0**40
"""Over so many replicas nothing is left of what they share."""

_FEW_FAMILIES = 8192
"""Up to this many families, computing all costs hardly more than computing some."""

_CACHED_RATES = 4
"""Cached batches of step rates per cluster: the calls of one search on a small cluster."""


@dataclass(frozen=True, slots=True)
class StepRates:
    """Step seconds, the standard deviation of ln(true / predicted) and tokens per step, each (n,)."""

    step_s: Array
    sigma: Array
    tokens_per_step: Array


@dataclass(frozen=True, slots=True)
class MemoryFits:
    """Whether layouts fit memory, and their device bytes, each (n,)."""

    fits: Array
    device_bytes: Array


class _LazyTable:
    """Columns by family, computed on first use and cached.

    A value that is the same for all families so far is stored as one number and broadcast. Threads may fill
    one table concurrently: `setdefault` inserts each number and each column once. The table does not keep
    `compute`, a method of its owner: evicted owners in a reference cycle wait for the garbage collector.
    """

    def __init__(self, size: int) -> None:
        self._ready = np.zeros(size, dtype=bool)
        self._numbers: dict[str, Array] = {}
        self._field_columns: dict[str, Array] = {}

    def rows(self, family: Array) -> dict[str, Array]:
        """The columns of the families at `family`, which `fill` has computed."""
        columns = self._field_columns
        return {k: columns[k][family] if k in columns else number for k, number in self._numbers.items()}

    def fill(self, family: Array, compute: Callable[[Array], Mapping[str, Array]]) -> None:
        """Compute the rows that are missing; `compute` takes their indices."""
        wanted = np.zeros(self._ready.size, dtype=bool)
        wanted[family] = True
        missing = np.flatnonzero(wanted & ~self._ready)
        if missing.size:
            for name, value in compute(missing).items():
                self._store(name, missing, value)
            self._ready[missing] = True

    def _store(self, name: str, index: Array, value: Array) -> None:
        first = self._numbers.setdefault(name, np.asarray(value.flat[0], dtype=float))
        if name not in self._field_columns:
            if np.all(value == first):
                return
            self._field_columns.setdefault(name, np.full(self._ready.size, first))
        self._field_columns[name][index] = value


class StageTables:
    """Families as layouts, and the memory of their pipeline stages, which is the same on every GPU type.

    `axes` hold a column of shape (families,) for each axis of a family. `nouns` need no GPU and no cluster.
    """

    def __init__(self, nouns: Cases, axes: Mapping[str, Array]) -> None:
        once = {"dp": np.asarray(1), "micro_batches": np.asarray(1), "sequence_parallel": axes["tp"] > 1}
        columns: dict[str, Array] = once | dict(axes)
        self._nouns = nouns
        self.layout = Columns.of(Layout()).replace(**columns)
        self.counts = device_memory.with_float_counts(self._cases(self.layout)).layout
        self.layered = axes["sharding"] >= Sharding.ZERO3
        self._ends = device_memory.candidates(self._cases(self.counts))
        self._stage_memory = _LazyTable(axes["tp"].size)

    def stage_memory(self, family: Array) -> list[StageMemory]:
        """Memory of the stages that may be the fullest, for these families. `fill` has computed it."""
        columns = self._stage_memory.rows(family)
        return [_stage_at(columns, position) for position in range(len(self._ends))]

    @cached_property
    def parameters(self) -> tuple[Array, Array]:
        """Parameters on the last stage of each family before ZeRO: dense, and of experts."""
        cases = self._cases(self.counts)
        last_stage = stage(cases, layer_weights(cases), self._ends[-1])
        return last_stage.plain, last_stage.experts

    def fill(self, family: Array) -> None:
        """Compute these families; all families if they are few, since other GPU types will need the rest."""
        few = self.layered.size <= _FEW_FAMILIES
        self._stage_memory.fill(np.arange(self.layered.size) if few else family, self._compute)

    def _cases(self, layout: Columns) -> Cases:
        return replace(self._nouns, layout=layout)

    def _compute(self, index: Array) -> dict[str, Array]:
        cases = self._cases(self.counts.take(index))
        stage_memory = per_stage.stages(cases, load_memory(), [end[index] for end in self._ends])
        return {
            f"{name}{i}": column
            for i, stage_columns in enumerate(stage_memory)
            for name, column in _field_columns(stage_columns).items()
        }


class ClusterTables:
    """Step time and memory tables of the families on one cluster.

    `nouns` have shape (). `stages` may be shared with clusters of other GPU types. `fitting` caches which
    families fit, by the largest GPU count. `step_rates_cache` caches step rates by (pairs, batch tolerance).
    """

    def __init__(self, nouns: Cases, stages: StageTables, calibration: Calibration | None) -> None:
        size = stages.layered.size
        self._nouns, self._stages, self._calibration = nouns, stages, calibration
        self._layer_inputs: StepInputs | None = None
        self.fitting: dict[int, tuple[Array, float]] = {}
        self.step_rates_cache: Callable[[bytes, float], dict[str, Any]] = lru_cache(maxsize=_CACHED_RATES)(
            _new_cache
        )
        self._passes = _LazyTable(size)
        self._step_sigma, self._memory_sigma = step_sigma(nouns), memory_sigma(nouns)

    def fill(self, family: Array) -> None:
        """Compute step-time tables for these families in one call."""
        self._passes.fill(family[~self._stages.layered[family]], self._compute_passes)

    def throughput(self, family: Array, layout: Columns) -> StepRates:
        """Step rates of layouts of these families (both of shape (n,))."""
        self.fill(family)
        parts = [self._step_rates(family[s], layout.take(s)) for s in _chunks(family.size)]
        names = ("step_s", "sigma", "tokens_per_step")
        return StepRates(*(_concatenate([getattr(part, name) for part in parts]) for name in names))

    def fit(self, family: Array, layout: Columns) -> MemoryFits:
        """Whether layouts of these families (both of shape (n,)) fit memory, and their bytes."""
        self._stages.fill(family)
        parts = [self._fit(family[s], layout.take(s)) for s in _chunks(family.size)]
        fits = _concatenate([part.fits for part in parts]).astype(bool)
        return MemoryFits(fits, _concatenate([part.device_bytes for part in parts]))

    def states_bytes(self) -> Array:
        """Bytes of states of one stage of each family, sharded over many replicas: the minimum per GPU."""
        cases = self._cases(self._stages.counts.replace(dp=np.asarray(_MANY_REPLICAS)))
        per = state_rates(cases)
        state_bytes = states(*self._stages.parameters, NO_ADAPTERS, per)
        return np.asarray(state_bytes.weights + state_bytes.gradients + state_bytes.optimizer)

    def _fit(self, family: Array, layout: Columns) -> MemoryFits:
        cases = self._rows(family, layout)
        peak = device_memory.peak(cases, load_memory(), self._stages.stage_memory(family))
        sigma = self._memory_sigma
        correction = correct(self._calibration, self._cases(layout), sigma, Quantity.MEMORY)
        if self._calibration:
            peak, sigma = (
                scaled(peak, correction.factor, but="context_bytes"),
                sigma * correction.sigma_factor,
            )
        fits = device_memory.fits(peak, cases.gpu.memory_bytes, sigma)
        return MemoryFits(fits, np.broadcast_to(peak.device_bytes, family.shape))

    def _step_rates(self, family: Array, layout: Columns) -> StepRates:
        layered = self._stages.layered[family]
        if not layered.any():
            return self._step_rates_from_tables(family, layout)
        if layered.all():
            speed = throughput(self._cases(layout), self._calibration)
            columns = (speed.step_s, speed.sigma, speed.tokens_per_step)
            return StepRates(*(np.broadcast_to(column, family.shape) for column in columns))
        order = [np.flatnonzero(~layered), np.flatnonzero(layered)]
        parts = [self._step_rates(family[index], layout.take(index)) for index in order]
        original_order = np.argsort(np.concatenate(order))
        names = ("step_s", "sigma", "tokens_per_step")
        return StepRates(
            *(_concatenate([getattr(part, name) for part in parts])[original_order] for name in names)
        )

    def _step_rates_from_tables(self, family: Array, layout: Columns) -> StepRates:
        assert self._layer_inputs is not None  # `fill` has filled the table
        cases = self._rows(family, layout)
        sigma = np.broadcast_to(self._step_sigma, family.shape)
        total_s = step_time.total_s(
            replace(self._layer_inputs, cases=cases), StageTimes(**self._passes.rows(family))
        )
        correction = correct(self._calibration, self._cases(layout), sigma, Quantity.STEP)
        if self._calibration:
            total_s, sigma = total_s * correction.factor, sigma * correction.sigma_factor
        tokens, least_s = tokens_and_least_s(cases)
        return StepRates(np.maximum(total_s, least_s), sigma, tokens)

    def _cases(self, layout: Columns) -> Cases:
        return replace(self._nouns, layout=layout)

    def _rows(self, family: Array, layout: Columns) -> Cases:
        """The cases of these layouts, with counts as floats."""
        counts = {"dp": layout.dp.astype(float), "micro_batches": layout.micro_batches.astype(float)}
        return self._cases(self._stages.counts.take(family).replace(**counts))

    def _compute_passes(self, index: Array) -> dict[str, Array]:
        known, layer = price_layers(self._cases(self._stages.layout.take(index)))
        self._layer_inputs = known
        return _field_columns(step_time.stage_times(known, layer))


def _new_cache(_asked: bytes, _batch_tolerance: float) -> dict[str, Any]:
    return {}


def _concatenate(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0), *parts])


def _chunks(rows: int) -> Iterator[slice]:
    """Slices of at most _CHUNK_ROWS rows."""
    return (slice(start, min(start + _CHUNK_ROWS, rows)) for start in range(0, rows, _CHUNK_ROWS))


def _field_columns(values: StageTimes | StageMemory) -> dict[str, Array]:
    return {f.name: getattr(values, f.name) for f in fields(values)}


def _stage_at(columns: Mapping[str, Array], position: int) -> StageMemory:
    return StageMemory(**{f.name: columns[f"{f.name}{position}"] for f in fields(StageMemory)})
