"""Fit the deviation of sources from the engine by the evidence like them, and report the coverage.

    python -m bench.fit.uncertainty [REFERENCE] [--date 2026-11-21] [--dry]

Writes data/measured.csv, the published runs behind the engine by facet, and data/uncertainty.json. Read are
the errors of sources left out of the fits (bench/results: ln(predicted / measured), with the framework known
and withheld) and of the first contacts with later waves (bench/first_contact/rows.csv). A source that is left
out does not count as evidence for its own rows; at a first contact only earlier waves do.

Steps are judged without the profiles that rest on the source, peaks with them: what a framework keeps in
memory was read from its code, not from its rows. Peaks have no rows of first contact: most of their error
came from inputs that the tables state and the engine did not read yet (the loss kernel, the offloaded share).
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from bench.first_contact.log import ROWS
from bench.fitting import DATA, arguments, runs
from bench.memory_rows import promoted
from bench.reference import reference
from bench.results import read_rows
from scipy.optimize import minimize

from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.familiarity import MeasuredRuns, RunTable, measured_runs
from rightsizer_engine.errors import UnsupportedError
from rightsizer_engine.estimate.uncertainty import WIDE, Z_80, coefficients, deviation
from rightsizer_engine.published.rows import case_from_row

COVERAGE = 0.8
WEIGHTS = {"left out": 1.0, "withheld": 0.25, "first contact": 2.0, "first contact, withheld": 0.5}
"""A first contact counts twice: the engine was made with the other rows in view."""
LEFT_OUT = {"step_time": ("left_out", "blind"), "memory": ("profile_kept_notes", "blind_notes")}
FIRST = {"step_time": ("told", "blind"), "memory": ()}
"""The columns with the framework known and withheld."""
NOTHING_LN = 0.35
"""The prior of `nothing_ln`: a constant utilisation for the GPU type errs by 30 % in the median and by about
50 % at the 80th percentile of first contacts (bench/first_contact/log.csv)."""
PULL = 0.1
"""How much the prior weighs against the mean of the rows' likelihood."""
LEVELS = (0.0, 0.25, 0.8, 2.0)
"""Evidence from which on coverage is reported apart."""
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """|ln error| of n rows of one kind, and the evidence that stood behind each prediction."""

    kind: str
    size: Array
    evidence: Array
    source: Array
    wave: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Published runs as cases, with the framework known (`cases`) and withheld (`blind`)."""

    rows: Sequence[Row]
    cases: Cases
    blind: Cases
    source: Array
    wave: Array
    step: Array
    memory: Array

    def measured(self, which: Array) -> RunTable:
        """The measurements of the chosen rows."""
        index = np.flatnonzero(which)
        return measured_runs(
            taken(self.cases, index), self.source[index], self.step[index], self.memory[index]
        )


def load(folder: Path) -> Table:
    """All runs with a usable step time or peak, with the inputs from their notes."""
    rows: list[Row] = []
    cases: list[Case] = []
    blind: list[Case] = []
    for row in runs(folder):
        if not (_timed(row) or row["usable_memory"] == "1"):
            continue
        try:
            cases.append(case_from_row(promoted(row)))
            blind.append(case_from_row({**promoted(row), "framework": ""}))
            rows.append(row)
        except UnsupportedError:
            continue
    return Table(
        rows=rows,
        cases=Cases.stack(cases),
        blind=Cases.stack(blind),
        source=np.asarray([r["id"].rsplit("-", 1)[0] for r in rows]),
        wave=np.asarray([r["wave"] for r in rows]),
        step=np.asarray([_timed(r) for r in rows]),
        memory=np.asarray([r["usable_memory"] == "1" for r in rows]),
    )


def _timed(row: Row) -> bool:
    usable = "1" in (row["usable_step_time"], row["usable_step_time_norecompute"])
    return usable and bool(row["step_time_s"])


def taken(cases: Cases, index: Array) -> Cases:
    """The cases at `index`."""
    return Cases(**{f.name: getattr(cases, f.name).take(index) for f in fields(Cases)})


def evidence_left_out(cases: Cases, source: Array, known: RunTable, quantity: str) -> Array:
    """The evidence behind each case if its own source had measured nothing."""
    found = np.zeros(source.shape)
    for name in np.unique(source):
        mine = np.flatnonzero(source == name)
        found[mine] = known.without(str(name)).evidence(taken(cases, mine), quantity)
    return found


def deviation_left_out(cases: Cases, source: Array, known: RunTable, quantity: str) -> Array:
    """The deviation of each prediction if its own source had measured nothing."""
    return deviation(evidence_left_out(cases, source, known, quantity), coefficients(quantity))


def errors(table: Table, quantity: str) -> Iterator[Errors]:
    """The rows of sources left out of the fit, then those of first contacts; known, then withheld."""
    everything = table.measured(np.ones(table.source.shape, dtype=bool))
    shown = (("", table.cases), ("withheld", table.blind))
    saved = {r["id"]: r for r in read_rows(quantity)}
    for column, (how, cases) in zip(LEFT_OUT[quantity], shown, strict=True):
        size = _sizes(table, {i: r[column] for i, r in saved.items()})
        index = np.flatnonzero(np.isfinite(size))
        behind = evidence_left_out(taken(cases, index), table.source[index], everything, quantity)
        yield _errors(how or "left out", table, size, index, behind)
    first = first_contacts()
    for column, (how, cases) in zip(FIRST[quantity], shown, strict=False):
        kind = f"first contact, {how}" if how else "first contact"
        size = _sizes(table, {i: float(r[column]) for i, r in first.items() if r[column]})
        for wave in np.unique(table.wave[np.isfinite(size)]):
            index = np.flatnonzero(np.isfinite(size) & (table.wave == wave))
            before = table.measured(table.wave.astype(int) < int(wave))
            behind = before.evidence(taken(cases, index), quantity)
            yield _errors(kind, table, size, index, behind)


def first_contacts() -> dict[str, dict[str, str]]:
    """ln(predicted / measured) of rows at first contact, by id."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def _sizes(table: Table, by_id: Mapping[str, float]) -> Array:
    return np.abs([by_id.get(row["id"], np.nan) for row in table.rows])


def _errors(kind: str, table: Table, size: Array, index: Array, behind: Array) -> Errors:
    return Errors(
        kind=kind, size=size[index], evidence=behind, source=table.source[index], wave=table.wave[index]
    )


def weights(parts: Sequence[Errors]) -> Array:
    """`WEIGHTS` by kind and wave; within, each source by the square root of its rows."""
    found = []
    for part in parts:
        _, index, counts = np.unique(part.source, return_inverse=True, return_counts=True)
        root = 1.0 / np.sqrt(counts[index])
        for wave in np.unique(part.wave):
            mine = part.wave == wave
            root[mine] *= WEIGHTS[part.kind] / np.sum(root[mine])
        found.append(root)
    return np.concatenate(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """All parts, one after the other."""

    size: Array
    evidence: Array
    source: Array
    weight: Array


def pooled(parts: Sequence[Errors]) -> Pooled:
    """All parts, one after the other."""
    joined = {
        name: np.concatenate([getattr(p, name) for p in parts]) for name in ("size", "evidence", "source")
    }
    return Pooled(**joined, weight=weights(parts))


def fit(rows: Pooled, weight: Array) -> dict[str, float]:
    """The likeliest `nothing_ln` and `source_ln`, both scaled so that the coverage is COVERAGE."""

    def cost(point: Array) -> float:
        density = log_density(rows.size, deviation(rows.evidence, _terms(point)))
        likelihood = np.average(density, weights=weight)
        return float(PULL * (point[0] - np.log(NOTHING_LN)) ** 2 - likelihood)

    best = minimize(cost, np.log([NOTHING_LN, 0.15]), method="Nelder-Mead").x
    ratio = rows.size / (Z_80 * deviation(rows.evidence, _terms(best)))
    return _terms(best + np.log(_quantile(ratio, weight)))


def log_density(size: Array, sigma: Array) -> Array:
    """The logarithm of an error's density, up to a constant: of the mixture that `quantile` inverts."""
    z = size / sigma
    density = (np.exp(-0.5 * z**2) + np.exp(-0.5 * (z / WIDE) ** 2) / WIDE) / sigma
    return np.asarray(np.log(density + 1e-12))


def _terms(point: Array) -> dict[str, float]:
    return {"nothing_ln": float(np.exp(point[0])), "source_ln": float(np.exp(point[1]))}


def _quantile(values: Array, weight: Array) -> float:
    """The weighted COVERAGE quantile."""
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / np.sum(weight)
    return float(values[order][np.searchsorted(share, COVERAGE)])


def report(parts: Sequence[Errors]) -> tuple[dict[str, float], dict[str, Any]]:
    """The terms, and the coverage of rows whose source was left out."""
    rows = pooled(parts)
    half = np.zeros(rows.size.shape)
    for source in np.unique(rows.source):
        mine = rows.source == source
        half[mine] = Z_80 * deviation(rows.evidence[mine], fit(rows, rows.weight * ~mine))
    found: dict[str, Any] = {}
    start = 0
    for part in parts:
        mine = slice(start, start := start + part.size.size)
        for wave in np.unique(part.wave):
            of = (part.wave == wave) & (part.source != "VTRAIN")
            found[f"{part.kind}, wave {wave}"] = figures(part.size[of], half[mine][of], part.source[of])
    told = np.concatenate([np.full(p.size.size, "withheld" not in p.kind) for p in parts])
    told &= rows.source != "VTRAIN"
    for low, high in zip(LEVELS, (*LEVELS[1:], np.inf), strict=True):
        of = told & (rows.evidence >= low) & (rows.evidence < high)
        if of.any():
            found[f"evidence from {low}"] = figures(rows.size[of], half[of], rows.source[of])
    return fit(rows, rows.weight), found


def figures(size: Array, half: Array, source: Array) -> dict[str, float]:
    """Coverage of rows and of sources, and the median half width, in percent."""
    inside = size <= half
    by_source = [np.mean(inside[source == name]) for name in np.unique(source)]
    return {
        "rows": int(size.size),
        "inside_80_pct": round(100 * float(np.mean(inside)), 1),
        "inside_80_by_source_pct": round(100 * float(np.mean(by_source)), 1),
        "half_width_pct": round(100 * float(np.median(half)), 1),
    }


def write_measured(table: RunTable, path: Path) -> None:
    """The table of runs behind the engine."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(MeasuredRuns)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**asdict(r), "experts": int(r.experts)} for r in table.runs)


def main() -> None:
    """Write the measured table; fit, print and write both widths."""
    parser = arguments(__doc__)
    parser.add_argument("--dry", action="store_true", help="print only")
    options = parser.parse_args()
    table = load(reference(options.reference))
    path = DATA / "uncertainty.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for quantity in ("memory", "step_time"):
        terms, coverage = report(list(errors(table, quantity)))
        terms = {name: round(value, 4) for name, value in terms.items()}
        document[quantity] = {"coefficients": terms, "coverage_of_80_pct": coverage, "date": options.date}
        print(quantity, terms)
        for name, line in coverage.items():
            print(f"  {name:34}", line)
    if not options.dry:
        text = json.dumps(document, indent=1) + "\n"
        path.write_text(text, encoding="utf-8")
        write_measured(table.measured(np.ones(table.source.shape, dtype=bool)), DATA / "measured.csv")


if __name__ == "__main__":
    main()
