"""Published step times as cases, and what their judge needs: sources, weights, FLOPs for the null model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench.fitting import runs
from bench.memory_rows import promoted
from bench.profiles import forgetting

from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.errors import UnsupportedError
from rightsizer_engine.estimate.prediction import gpus, model_flop_per_token, peak_flop_per_s
from rightsizer_engine.published.rows import case_from_row

INCOMPLETE_WEIGHT = 0.5
LARGEST_WEIGHT = 60
"""A source weighs as the square root of its rows, of at most this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """n published step times and their cases; `judged` ones are complete, `usable` counts all of those."""

    rows: Sequence[Mapping[str, str]]
    cases: Cases
    source: Array
    wave: Array
    measured_s: Array
    judged: Array
    usable: int
    unsupported: Sequence[str]


def load(folder: Path, *, notes: bool = False, blind: bool = False, forget: bool = False) -> StepRows:
    """The usable rows that the engine supports; `blind` withholds the framework.

    `forget` shows a row without the profiles that rest on its source alone (bench/profiles.py).

    With `notes`, inputs that a table keeps only in free text become columns first.
    """
    return build(forgetting(runs(folder)) if forget else runs(folder), notes=notes, blind=blind)


def build(table: Sequence[Mapping[str, str]], *, notes: bool = False, blind: bool = False) -> StepRows:
    """The usable rows of a table that the engine supports."""
    usable = [r for r in table if is_judged(r) or _partly(r)]
    rows: list[Mapping[str, str]] = []
    cases: list[Case] = []
    unsupported: list[str] = []
    for row in usable:
        try:
            shown = promoted(row) if notes else row
            cases.append(case_from_row({**shown, "framework": ""} if blind else shown))
            rows.append(row)
        except UnsupportedError as reason:
            unsupported.append(f"{row['id']}: {reason}")
    return StepRows(
        rows=rows,
        cases=Cases.stack(cases),
        source=np.asarray([r["id"].rsplit("-", 1)[0] for r in rows]),
        wave=np.asarray([r.get("wave", "") for r in rows]),
        measured_s=np.asarray([float(r["step_time_s"]) for r in rows]),
        judged=np.asarray([is_judged(r) for r in rows]),
        usable=sum(is_judged(r) for r in usable),
        unsupported=unsupported,
    )


def is_judged(row: Mapping[str, str]) -> bool:
    """Whether nothing that a step time depends on is missing from the row."""
    return row["usable_step_time"] == "1" and bool(row["step_time_s"])


def _partly(row: Mapping[str, str]) -> bool:
    """Rows that lack only their recompute: good enough to fit by the framework's default, not to judge."""
    return row["usable_step_time_norecompute"] == "1" and bool(row["step_time_s"])


def take(cases: Cases, index: Array) -> Cases:
    """The cases at `index`."""
    return Cases(
        architecture=cases.architecture.take(index),
        workload=cases.workload.take(index),
        cluster=cases.cluster.take(index),
        gpu=cases.gpu.take(index),
        framework=cases.framework.take(index),
        layout=cases.layout.take(index),
    )


def weights(source: Array, judged: Array) -> Array:
    """The weight of each row: sources as the square root of their rows, capped; half if incomplete."""
    _, index, counts = np.unique(source, return_inverse=True, return_counts=True)
    weight = (np.sqrt(np.minimum(counts, LARGEST_WEIGHT)) / counts)[index]
    return np.asarray(weight * np.where(judged, 1.0, INCOMPLETE_WEIGHT))


def full_rate_s(cases: Cases) -> Array:
    """Seconds of a step at the vendor's peak, recomputed FLOPs included: what the null model scales."""
    tokens = cases.workload.sequence_tokens * cases.workload.global_batch_sequences
    again = np.where(cases.layout.recompute == Recompute.FULL, 4 / 3, 1.0)
    peak = peak_flop_per_s(cases.gpu, cases.workload) * gpus(cases.layout)
    return np.asarray(model_flop_per_token(cases) * tokens * again / peak)
