"""Fit the width of the intervals to residuals on sources left out of the fit, and report their coverage.

python bench/fit/uncertainty.py [REFERENCE] [--date 2026-11-21] [--dry]

Reads bench/results/{memory,step_time}.csv: a table of rows, each with `id`, `left_out` and `blind` as
ln(predicted / measured) from a fit without the row's source, with the framework known and withheld.
Writes data/uncertainty.json.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.fitting import DATA, arguments, reference, runs
from bench.memory_rows import promoted
from bench.results import RESULTS, read_rows
from scipy.optimize import minimize

from rightsizer.domain.cases import Cases
from rightsizer.domain.columns import Array
from rightsizer.estimate.uncertainty import features, z_quantile
from rightsizer.published.rows import case_from_row

COVERAGE = 0.8
HALF_WIDTH = z_quantile(0.5 + COVERAGE / 2)
RIDGE = 0.06
"""Pull of each coefficient to 0: a feature must earn its place."""
IGNORANCE = ("unknown_framework", "link_not_stated", "other_hardware")
"""Features that mark missing knowledge: they never narrow an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """|ln error| of n rows, the features that hold for each (n, k), and the rows' sources."""

    size: Array
    holds: Array
    names: Sequence[str]
    source: Array
    known: Array


def residuals(folder: Path, quantity: str) -> Residuals:
    """Rows with the framework known, then the same rows with it withheld.

    Both include inputs that a table states only in its notes, because a plan states all of its inputs.
    """
    suffix = "_notes" if quantity == "memory" else ""
    by_id = {row["id"]: row for row in read_rows(quantity)}
    rows = [r for r in runs(folder) if r["id"] in by_id]
    parts: list[tuple[Array, Array]] = []
    names: Sequence[str] = ()
    for column in ("left_out", "blind"):
        shown: list[Mapping[str, str]] = [promoted(r) for r in rows]
        shown = [{**r, "framework": ""} if column == "blind" else r for r in shown]
        cases = Cases.stack(case_from_row(r) for r in shown)
        columns = features(cases)
        names = tuple(columns)
        holds = np.stack([np.broadcast_to(columns[n], (len(rows),)) for n in names], axis=1)
        parts.append((np.abs([by_id[r["id"]][column + suffix] for r in rows]), holds))
    source = np.asarray([r["id"].split("-")[0] for r in rows])
    return Residuals(
        size=np.concatenate([p[0] for p in parts]),
        holds=np.concatenate([p[1] for p in parts]),
        names=names,
        source=np.concatenate([source, source]),
        known=np.repeat([True, False], len(rows)),
    )


def fit(errors: Residuals, weight: Array) -> Array:
    """Intercept and coefficients: intervals of HALF_WIDTH * sigma each way cover COVERAGE of the weight."""
    ignorant = np.asarray([False, *(name in IGNORANCE for name in errors.names)])

    def cost(free: Array) -> float:
        point = np.where(ignorant, np.abs(free), free)
        miss = errors.size - HALF_WIDTH * np.exp(point[0] + errors.holds @ point[1:])
        pinball = np.where(miss > 0, COVERAGE * miss, (COVERAGE - 1) * miss)
        return float(np.average(pinball, weights=weight) + RIDGE * 0.01 * np.sum(point[1:] ** 2))

    start = np.concatenate(
        [[np.log(np.average(errors.size, weights=weight))], np.zeros(errors.holds.shape[1])]
    )
    best = minimize(cost, start, method="Powell", options={"maxiter": 20000}).x
    return np.where(ignorant, np.abs(best), best)


def relative(errors: Residuals, point: Array) -> Array:
    """Each row's error over the half width of its interval."""
    return np.asarray(errors.size / (HALF_WIDTH * np.exp(point[0] + errors.holds @ point[1:])))


def report(errors: Residuals) -> tuple[Array, dict[str, Any]]:
    """The coefficients, and the coverage of rows whose source did not shape the width.

    Widths fitted without a source are too narrow for it on average; one factor for known and one for withheld
    frameworks make their weighted coverage COVERAGE.
    """
    _, index, counts = np.unique(errors.source, return_inverse=True, return_counts=True)
    weight = 1.0 / np.sqrt(counts[index])
    point = fit(errors, weight)
    ratio = np.zeros(errors.size.shape)
    for source in np.unique(errors.source):
        mine = errors.source == source
        ratio[mine] = relative(errors, fit(errors, weight * ~mine))[mine]
    known = errors.known
    wider = [np.log(_quantile(ratio[rows], weight[rows])) for rows in (known, ~known)]
    point[0] += wider[0]
    point[1 + list(errors.names).index("unknown_framework")] += wider[1] - wider[0]
    inside = ratio <= np.exp(np.where(known, wider[0], wider[1]))
    return point, {
        "known_framework_rows_pct": round(100 * float(np.mean(inside[known])), 1),
        "known_framework_sources_pct": round(100 * float(np.mean(_by_source(inside, errors, known))), 1),
        "withheld_framework_rows_pct": round(100 * float(np.mean(inside[~known])), 1),
        "withheld_framework_sources_pct": round(100 * float(np.mean(_by_source(inside, errors, ~known))), 1),
    }


def _quantile(values: Array, weight: Array) -> float:
    """The weighted COVERAGE quantile."""
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / np.sum(weight)
    return float(values[order][np.searchsorted(share, COVERAGE)])


def _by_source(inside: Array, errors: Residuals, rows: Array) -> list[float]:
    return [float(np.mean(inside[rows & (errors.source == s)])) for s in np.unique(errors.source)]


def main() -> None:
    """Fit both widths, print their coverage and write them."""
    parser = arguments(__doc__)
    parser.add_argument("--dry", action="store_true", help="print only")
    options = parser.parse_args()
    path = DATA / "uncertainty.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for quantity in ("memory", "step_time"):
        if not read_rows(quantity):
            print(f"{quantity}: no residuals in {RESULTS}; kept as it was")
            continue
        errors = residuals(reference(options.reference), quantity)
        point, coverage = report(errors)
        terms: Mapping[str, float] = dict(
            zip(("intercept", *errors.names), np.round(point, 3).tolist(), strict=True)
        )
        document[quantity] = {"coefficients": terms, "coverage_of_80_pct": coverage, "date": options.date}
        print(quantity, json.dumps(document[quantity], indent=1))
    if not options.dry:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
