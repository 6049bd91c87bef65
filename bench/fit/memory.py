"""Fit the memory terms to published peaks, and report errors on sources left out of the fit.

    python bench/fit/memory.py [REFERENCE] [--date 2026-11-21] [--dry]

A source's weight is the square root of its rows. Writes data/memory.json and bench/results/memory.csv: errors
with all sources in the fit; with the row's own source left out; with the framework withheld as well.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from bench.fit.gauss_newton import Linear, Prior, solve
from bench.fitting import DATA, arguments, save, summary
from bench.memory_rows import MemoryRows, load, predicted_bytes
from bench.reference import reference
from bench.results import write_rows

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.estimate.parameters import Parameters, load_memory


def weights(peaks: MemoryRows) -> Array:
    """Weights such that every source counts as the square root of its rows."""
    names, index, counts = np.unique(peaks.source, return_inverse=True, return_counts=True)
    del names
    return 1.0 / np.sqrt(counts[index])


def fitted(
    peaks: MemoryRows, parameters: Parameters, keep: Array, *, start: Array | None = None
) -> tuple[dict[str, float], Array]:
    """Values of all terms, fitted on the rows in `keep`; their logarithms, as a start for another fit."""
    names = [name for name in parameters if parameters.entry(name).sigma_ln > 0]
    entries = [parameters.entry(name) for name in names]
    prior = Prior.of(entries)

    def residuals(point: Array) -> Array:
        trial = parameters.replace(**dict(zip(names, np.exp(point).tolist(), strict=True)))
        return errors(peaks, trial)

    first = prior.mean if start is None else start
    solution: Linear = solve(residuals, first, weights(peaks) * keep, prior)
    return dict(zip(names, np.exp(solution.point).tolist(), strict=True)), solution.point


def errors(peaks: MemoryRows, parameters: Parameters) -> Array:
    """ln(predicted / measured)."""
    return np.asarray(np.log(predicted_bytes(peaks, parameters) / peaks.measured_bytes))


def left_out(
    with_notes: MemoryRows, shown: Mapping[str, MemoryRows], parameters: Parameters
) -> dict[str, Array]:
    """Errors on every source from a fit without it, for each variant of the rows."""
    result = {name: np.zeros(len(peaks.rows)) for name, peaks in shown.items()}
    _, near = fitted(with_notes, parameters, np.ones(len(with_notes.rows)))
    for source in np.unique(with_notes.source):
        mine = with_notes.source == source
        values, _ = fitted(with_notes, parameters, (~mine).astype(float), start=near)
        trial = parameters.replace(**values)
        for name, peaks in shown.items():
            result[name][mine] = errors(peaks, trial)[mine]
    return result


def table(source: Array, wave: Array, columns: Mapping[str, Array]) -> str:
    """Median, 90th percentile and bias of |error| by source, by wave and over all."""
    head = "source     n  " + "  ".join(f"{name:>22}" for name in columns)
    lines = [head]
    groups = {str(name): source == name for name in np.unique(source)}
    groups |= {f"WAVE {name}": wave == name for name in np.unique(wave)} | {"ALL": source != ""}
    for name, mine in groups.items():
        cells = []
        for error in columns.values():
            s = summary(error[mine])
            cells.append(f"{s['median_pct']:6.1f} {s['p90_pct']:6.1f} {s['bias_pct']:+7.1f}")
        lines.append(f"{name:8} {int(mine.sum()):4d}  " + "  ".join(f"{cell:>22}" for cell in cells))
    means = [
        np.mean([summary(e[source == n])["median_pct"] for n in np.unique(source)]) for e in columns.values()
    ]
    lines.append("mean of source medians " + "  ".join(f"{mean:10.2f}" for mean in means))
    return "\n".join(lines)


def main() -> None:
    """Fit, cross-validate, print and write."""
    parser = arguments(__doc__)
    parser.add_argument("--dry", action="store_true", help="print only")
    parser.add_argument("--quick", action="store_true", help="no cross-validation")
    options = parser.parse_args()
    folder = reference(options.reference)
    noted, plain, blind = load(folder, notes=True), load(folder), load(folder, notes=True, blind=True)
    start = load_memory()
    values, _ = fitted(noted, start, np.ones(len(noted.rows)))
    best = start.replace(**values)
    columns = {"seen": errors(plain, best), "seen, notes": errors(noted, best)}
    if not options.quick:
        shown = {
            "left out": load(folder, forget=True),
            "left out, notes": load(folder, notes=True, forget=True),
        }
        shown |= {"profile kept, notes": noted, "blind, notes": blind}
        columns |= left_out(noted, shown, start)
    print({name: float(f"{getattr(best, name):.4g}") for name in best})
    print(table(plain.source, plain.wave, columns))
    if not options.dry:
        write(best, plain, columns, options.date)


def write(best: Parameters, peaks: MemoryRows, columns: Mapping[str, Array], date: str) -> None:
    """The fitted terms for the engine, the residuals for the intervals and the documents."""
    residual = summary(columns["seen"])["median_pct"]
    entries = [replace(best.entry(name), value=getattr(best, name), date="", fitted_on="") for name in best]
    sources = ", ".join(np.unique(peaks.source))
    save(
        DATA / "memory.json",
        entries,
        fitted_on=f"{len(peaks.rows)} published peaks: {sources}",
        date=date,
        residual=residual / 100,
    )
    rows: list[dict[str, Any]] = [
        {"id": r["id"], "measured_gib": round(float(r["peak_memory_gib"]), 3)}
        | {name.replace(", ", "_").replace(" ", "_"): round(float(e[i]), 4) for name, e in columns.items()}
        for i, r in enumerate(peaks.rows)
    ]
    write_rows("memory", rows)


if __name__ == "__main__":
    main()
