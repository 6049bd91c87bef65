"""The evidence behind a prediction: published runs like it, counted by independent sources.

`data/measured.csv` counts the runs that the engine was fitted to, by source and by six facets: the stack, the
GPU, the method, the length of sequences, dense or experts, the precision. A source's runs are worth half for
each step that they differ from a case: one step for a stack of the same family, a GPU of the same
generation, a related method or a factor of four in sequence length, two steps for anything further away. The
`evidence` for a case is the sum over the sources of their most similar runs, so 1.0 is worth what one
source says that measured exactly this. Facets belong to the case, never to the layout: a search would
otherwise prefer layouts that are merely better known.
"""

import csv
import enum
from collections.abc import Callable, Iterable
from functools import cache, cached_property

import numpy as np

from rightsizer_engine import packaged
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Gpu
from rightsizer_engine.domain.workload import Method, Precision, Workload
from rightsizer_engine.values import immutable

_HALF = 0.5
"""What evidence is worth one step away. Best of 0.4, 0.5 and 0.6 by the likelihood of first contacts."""
_FAR = 2.0
"""Steps between values that have nothing in common."""
_OCTAVES = 2.0
"""Doublings of the sequence length in one step."""
_BITS = {Precision.FP32: 32, Precision.BF16: 16, Precision.FP16: 16, Precision.FP8: 8, Precision.NVFP4: 4}
_RELATED = {Method.PRETRAIN: "all", Method.FINETUNE: "all", Method.LORA: "few", Method.QLORA: "few"}


class Level(enum.StrEnum):
    """The level of evidence for a request; the width of the interval follows from the same."""

    WELL = "well measured"
    PARTLY = "partly measured"
    HARDLY = "hardly measured"
    NEVER = "never measured"


_LEAST = {Level.WELL: 2.0, Level.PARTLY: 0.8, Level.HARDLY: 0.25, Level.NEVER: 0.0}
"""The least evidence of each level: two sources of exactly this, most of one, one that is two steps away."""


@immutable
class MeasuredRuns:
    """Runs of one source that share all facets; `step_rows` and `memory_rows` count measurements."""

    source: str
    stack: str
    family: str
    gpu: str
    generation: str
    method: str
    sequence_tokens: int
    experts: bool
    bits: int
    step_rows: int
    memory_rows: int


@immutable
class FacetCount:
    """Published runs that share one facet with the case."""

    facet: str
    value: str
    sources: int
    rows: int


@immutable
class Familiarity:
    """The evidence behind a prediction of step time.

    `sources` and `rows` share all facets; `unfamiliar` names the facets that no source shares.
    """

    level: Level
    evidence: float
    sources: int
    rows: int
    facets: tuple[FacetCount, ...]

    @property
    def unfamiliar(self) -> tuple[str, ...]:
        """The values of the case that no measured run has."""
        return tuple(count.value for count in self.facets if not count.sources)


class RunTable:
    """A table of measured runs."""

    def __init__(self, runs: Iterable[MeasuredRuns]) -> None:
        self.runs = tuple(sorted(runs, key=lambda r: r.source))

    def without(self, source: str) -> "RunTable":
        """The table without one source's runs: what it meets when it is left out."""
        return RunTable(r for r in self.runs if r.source != source)

    def evidence(self, cases: Cases, quantity: str = "step_time") -> Array:
        """Sources' worth of runs like each case; `quantity` is "step_time" or "memory"."""
        if not self.runs:
            return np.zeros(np.shape(cases.workload.sequence_tokens))
        steps = sum(self._steps(_facets(cases)).values())
        alike = _HALF**steps * self._weight[quantity]
        return np.asarray(np.maximum.reduceat(alike, self._first, axis=-1).sum(axis=-1))

    def share(self, cases: Cases) -> dict[str, Array]:
        """Which runs share each facet with one case; sequence lengths within a factor of two."""
        steps = self._steps(_facets(cases))
        return {name: far < (1.0 if name == "sequence" else 0.5) for name, far in steps.items()}

    def count(self, which: Array) -> tuple[int, int]:
        """The sources and the rows with a step time among the chosen runs."""
        chosen = [r for r, taken in zip(self.runs, which, strict=True) if taken and r.step_rows]
        return len({r.source for r in chosen}), sum(r.step_rows for r in chosen)

    def _steps(self, facets: dict[str, Array]) -> dict[str, Array]:
        """Steps between every case and every tuple of runs, by facet, of shape (..., tuples)."""
        mine = self._columns
        same_stack = (facets["stack"] == mine["stack"]) & facets["known"]
        octaves = np.abs(np.log2(facets["sequence"] / mine["sequence"]))
        return {
            "stack": _nearest(same_stack, facets["family"] == mine["family"]),
            "gpu": _nearest(facets["gpu"] == mine["gpu"], facets["generation"] == mine["generation"]),
            "method": _nearest(facets["method"] == mine["method"], facets["related"] == mine["related"]),
            "sequence": np.minimum(octaves / _OCTAVES, _FAR),
            "kind": np.where(facets["experts"] == mine["experts"], 0.0, _FAR),
            "precision": np.where(facets["bits"] == mine["bits"], 0.0, _FAR),
        }

    @cached_property
    def _columns(self) -> dict[str, Array]:
        def column(value: Callable[[MeasuredRuns], object]) -> Array:
            return np.asarray([value(r) for r in self.runs])

        return {
            "stack": column(lambda r: r.stack),
            "family": column(lambda r: r.family),
            "gpu": column(lambda r: r.gpu),
            "generation": column(lambda r: r.generation),
            "method": column(lambda r: r.method),
            "related": column(lambda r: _RELATED[Method(r.method)]),
            "sequence": column(lambda r: float(r.sequence_tokens)),
            "experts": column(lambda r: r.experts),
            "bits": column(lambda r: r.bits),
        }

    @cached_property
    def _first(self) -> Array:
        """The first index of each source in the sorted table."""
        names = [r.source for r in self.runs]
        return np.asarray([i for i, name in enumerate(names) if i == 0 or name != names[i - 1]])

    @cached_property
    def _weight(self) -> dict[str, Array]:
        """The weight of n rows of a source, n / (n + 1): one row may be an accident."""
        step = np.asarray([r.step_rows for r in self.runs], dtype=float)
        memory = np.asarray([r.memory_rows for r in self.runs], dtype=float)
        return {"step_time": step / (step + 1.0), "memory": memory / (memory + 1.0)}


def _nearest(same: Array, related: Array) -> Array:
    return np.where(same, 0.0, np.where(related, 1.0, _FAR))


def _facets(cases: Cases) -> dict[str, Array]:
    """The facets of cases as columns that broadcast against the table's: a last axis of one."""
    workload, gpu, framework = cases.workload, cases.gpu, cases.framework
    columns = {
        "stack": framework.name,
        "known": framework.known,
        "family": framework.family,
        "gpu": gpu.name,
        "generation": _text(generation, gpu.architecture, gpu.compute_capability),
        "method": workload.method,
        "related": _text(lambda method: _RELATED[Method(method)], workload.method),
        "sequence": np.maximum(workload.sequence_tokens, 1).astype(float),
        "experts": cases.architecture.experts > 0,
        "bits": _text(lambda precision: _BITS[Precision(precision)], workload.precision),
    }
    return {name: np.asarray(column)[..., None] for name, column in columns.items()}


def _text(function: Callable[..., object], *columns: Array) -> Array:
    """A function of texts and numbers, row by row."""
    full = np.broadcast_arrays(*columns)
    found = [function(*row) for row in zip(*(c.reshape(-1).tolist() for c in full), strict=True)]
    return np.asarray(found).reshape(full[0].shape)


def generation(architecture: str, compute_capability: float) -> str:
    """A GPU's generation: A100 and RTX 3090 are both "ampere", but different chips."""
    return f"{architecture} {compute_capability:.0f}" if compute_capability else architecture


def measured_runs(cases: Cases, sources: Iterable[str], step: Array, memory: Array) -> RunTable:
    """The table of rows of published runs: their cases, their sources and what each of them measured."""
    facets = {name: column[..., 0].tolist() for name, column in _facets(cases).items()}
    counts: dict[tuple[object, ...], list[int]] = {}
    names = ("stack", "family", "gpu", "generation", "method", "sequence", "experts", "bits")
    for i, source in enumerate(sources):
        stack = facets["stack"][i] if facets["known"][i] else ""
        key = (source, stack, *(facets[name][i] for name in names[1:]))
        pair = counts.setdefault(key, [0, 0])
        pair[0], pair[1] = pair[0] + int(step[i]), pair[1] + int(memory[i])
    return RunTable(_runs(key, *pair) for key, pair in sorted(counts.items(), key=str))


def _runs(key: tuple[object, ...], step_rows: int, memory_rows: int) -> MeasuredRuns:
    source, stack, family, gpu, kind, method, sequence, experts, bits = map(str, key)
    return MeasuredRuns(
        source=source, stack=stack, family=family, gpu=gpu, generation=kind, method=method,
        sequence_tokens=int(float(sequence)), experts=experts in {"1", "True"}, bits=int(bits),
        step_rows=step_rows, memory_rows=memory_rows,
    )  # fmt: skip


@cache
def measured() -> RunTable:
    """The runs behind the engine's parameters (`python -m bench.fit.uncertainty` writes their table)."""
    lines = csv.reader(packaged.text("measured.csv").splitlines())
    next(lines)
    return RunTable(_runs(tuple(line[:9]), int(line[9]), int(line[10])) for line in lines)


def familiarity(
    architecture: Architecture, workload: Workload, gpu: Gpu, framework: Framework
) -> Familiarity:
    """The measured runs like a request, by all facets together and one by one."""
    table = measured()
    cases = Cases(
        architecture=Columns.of(architecture),
        workload=Columns.of(workload),
        cluster=Columns({}),
        gpu=Columns.of(gpu),
        framework=Columns.of(framework),
        layout=Columns({}),
    )
    shared = table.share(cases)
    values = {
        "stack": framework.name if framework.known else "unknown stack",
        "gpu": gpu.name,
        "method": workload.method.value,
        "sequence": f"about {workload.sequence_tokens:,} tokens a sequence",
        "kind": "experts" if architecture.experts else "dense",
        "precision": f"{_BITS[workload.precision]} bits",
    }
    evidence = float(table.evidence(cases))
    sources, rows = table.count(np.logical_and.reduce(list(shared.values())))
    return Familiarity(
        level=next(level for level, least in _LEAST.items() if evidence >= least),
        evidence=evidence,
        sources=sources,
        rows=rows,
        facets=tuple(_facet(name, values[name], table.count(which)) for name, which in shared.items()),
    )


def _facet(name: str, value: str, found: tuple[int, int]) -> FacetCount:
    return FacetCount(facet=name, value=value, sources=found[0], rows=found[1])
