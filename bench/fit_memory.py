"""Fit the memory terms to published peaks, and say how far off they are on sources they have not seen.

    python bench/fit_memory.py [REFERENCE] [--date 2026-11-21] [--dry]

Sources weigh by the square root of their rows. Writes data/memory.json and bench/results/memory.csv: errors
with all sources seen; with the own source left out; with that and the framework withheld.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from bench.fitting import DATA, arguments, reference, save, summary
from bench.gauss_newton import Linear, Prior, solve
from bench.memory_rows import MemoryRows, load, predicted_bytes
from bench.results import write_rows

from rightsizer.domain.columns import Array
from rightsizer.estimate.parameters import Parameters, load_memory


def weights(some: MemoryRows) -> Array:
    """Every source counts as the square root of its rows."""
    names, index, counts = np.unique(some.source, return_inverse=True, return_counts=True)
    del names
    return 1.0 / np.sqrt(counts[index])


def fitted(
    some: MemoryRows, parameters: Parameters, keep: Array, *, start: Array | None = None
) -> tuple[dict[str, float], Array]:
    """Values of all terms, fitted on the rows in `keep`; their logarithms, where another fit may start."""
    names = [name for name in parameters if parameters.entry(name).sigma_ln > 0]
    entries = [parameters.entry(name) for name in names]
    prior = Prior(
        mean=np.log([entry.prior for entry in entries]), sigma=np.asarray([e.sigma_ln for e in entries])
    )

    def residuals(point: Array) -> Array:
        trial = parameters.replace(**dict(zip(names, np.exp(point).tolist(), strict=True)))
        return errors(some, trial)

    first = prior.mean if start is None else start
    found: Linear = solve(residuals, first, weights(some) * keep, prior)
    return dict(zip(names, np.exp(found.point).tolist(), strict=True)), found.point


def errors(some: MemoryRows, parameters: Parameters) -> Array:
    """ln(predicted / measured)."""
    return np.asarray(np.log(predicted_bytes(some, parameters) / some.measured_bytes))


def left_out(told: MemoryRows, shown: Mapping[str, MemoryRows], parameters: Parameters) -> dict[str, Array]:
    """Errors on every source from a fit without it, for each way of showing the rows."""
    result = {name: np.zeros(len(some.rows)) for name, some in shown.items()}
    _, near = fitted(told, parameters, np.ones(len(told.rows)))
    for source in np.unique(told.source):
        mine = told.source == source
        values, _ = fitted(told, parameters, (~mine).astype(float), start=near)
        trial = parameters.replace(**values)
        for name, some in shown.items():
            result[name][mine] = errors(some, trial)[mine]
    return result


def table(source: Array, columns: Mapping[str, Array]) -> str:
    """Median, 90th percentile and bias of |error| by source, and over all."""
    head = "source     n  " + "  ".join(f"{name:>22}" for name in columns)
    lines = [head]
    for name in (*np.unique(source), "ALL"):
        mine = np.full(source.shape, True) if name == "ALL" else source == name
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
    told, plain, blind = load(folder, notes=True), load(folder), load(folder, blind=True)
    blind_told = load(folder, notes=True, blind=True)
    start = load_memory()
    values, _ = fitted(told, start, np.ones(len(told.rows)))
    best = start.replace(**values)
    columns = {"seen": errors(plain, best), "seen, notes": errors(told, best)}
    if not options.quick:
        shown = {"left out": plain, "left out, notes": told, "blind": blind}
        shown["blind, notes"] = blind_told
        columns |= left_out(told, shown, start)
    print({name: float(f"{getattr(best, name):.4g}") for name in best})
    print(table(plain.source, columns))
    if not options.dry:
        write(best, plain, columns, options.date)


def write(best: Parameters, some: MemoryRows, columns: Mapping[str, Array], date: str) -> None:
    """The fitted terms for the engine, the residuals for the intervals and the documents."""
    residual = summary(columns["seen"])["median_pct"]
    entries = [replace(best.entry(name), value=getattr(best, name), date="", fitted_on="") for name in best]
    sources = ", ".join(np.unique(some.source))
    save(
        DATA / "memory.json",
        entries,
        fitted_on=f"{len(some.rows)} published peaks: {sources}",
        date=date,
        residual=residual / 100,
    )
    rows: list[dict[str, Any]] = [
        {"id": r["id"], "measured_gib": round(float(r["peak_memory_gib"]), 3)}
        | {name.replace(", ", "_").replace(" ", "_"): round(float(e[i]), 4) for name, e in columns.items()}
        for i, r in enumerate(some.rows)
    ]
    write_rows("memory", rows)


if __name__ == "__main__":
    main()
