"""What one's own runs are worth: calibrate on k random runs of a source, predict its others.

    python -m bench.calibration [REFERENCE] [--fit] [--json FILE]

The residuals are those of bench/results/{step_time,memory}.json, from fits without the row's source, so that
every source stands for a user whose runs no fit has seen. The shares of the variance (data/calibration.json)
are fitted by maximum likelihood to the other sources each time; with --fit those of all are written.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.fitting import DATA, read, reference, save
from scipy.optimize import minimize

from rightsizer.cases import Case, Cases
from rightsizer.columns import Array
from rightsizer.correction import SHARES, Calibration, Evidence, Quantity, Residual, correct, covariances
from rightsizer.parameters import Parameters, load_calibration
from rightsizer.runs import COLUMNS, case_from_row
from rightsizer.uncertainty import memory_sigma, step_sigma, z_quantile

RESULTS = Path(__file__).resolve().parent / "results"
KNOWN = (0, 1, 3, 10)
DRAWS = 20
MOST_ROWS = 100
"""Of a source larger than this so many random rows: VTRAIN has a thousand."""
FEWEST_ROWS = 5
OUTLIER = 3.0
"""Residuals beyond so many sigmas count as so many when shares are fitted."""
EIGHTY = z_quantile(0.9)
REPLICATES = "published runs with equal inputs in one source"
_COLUMNS_OF = {
    "step": ("step_time_s", "usable_step_time"),
    "memory": ("peak_memory_gib", "usable_memory"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The runs of one source: their cases, residuals ln(measured / predicted) and the engine's sigmas."""

    name: str
    cases: Cases
    evidence: tuple[Evidence, ...]
    ln: Array
    sigma: Array

    def __len__(self) -> int:
        return len(self.evidence)

    def take(self, index: Array) -> Cases:
        """The cases at `index`."""
        c = self.cases
        parts = (c.architecture, c.workload, c.cluster, c.gpu, c.framework, c.layout)
        names = ("architecture", "workload", "cluster", "gpu", "framework", "layout")
        return Cases(**{name: part.take(index) for name, part in zip(names, parts, strict=True)})


def main() -> None:
    """Print and write the tables; with --fit also the shares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference", nargs="?", help="folder of the reference tables")
    parser.add_argument("--fit", action="store_true", help="write data/calibration.json")
    parser.add_argument("--date", default="", help="the date that --fit writes")
    parser.add_argument("--json", type=Path, default=RESULTS / "calibration.json", metavar="FILE")
    given = parser.parse_args()
    rows = {row["id"]: row for row in read(reference(given.reference), "published_runs.csv")}
    document: dict[str, Any] = {}
    shares: dict[str, Mapping[str, float]] = {}
    for quantity, file in ((Quantity.STEP, "step_time.json"), (Quantity.MEMORY, "memory.json")):
        sources = load(rows, json.loads((RESULTS / file).read_text(encoding="utf-8")), quantity)
        shares[quantity] = fitted(sources, quantity)
        document[quantity] = judged(sources, quantity) | {"shares": shares[quantity]}
        show(quantity, document[quantity])
    given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if given.fit:
        write(shares, {quantity: between_runs(rows.values(), quantity) for quantity in shares}, given.date)


def load(
    rows: Mapping[str, Mapping[str, str]], residuals: Sequence[Mapping[str, Any]], quantity: Quantity
) -> list[Source]:
    """The sources with enough rows."""
    by_source: dict[str, list[tuple[Case, float, str]]] = {}
    for one in residuals:
        if one["left_out"] is not None and one["id"] in rows:
            found = (case_from_row(rows[one["id"]]), -float(one["left_out"]), one["id"])
            by_source.setdefault(one["id"].split("-")[0], []).append(found)
    return [_source(name, found, quantity) for name, found in by_source.items() if len(found) >= FEWEST_ROWS]


def _source(name: str, found: list[tuple[Case, float, str]], quantity: Quantity) -> Source:
    if len(found) > MOST_ROWS:
        chosen = np.random.default_rng(0).choice(len(found), MOST_ROWS, replace=False)
        found = [found[i] for i in sorted(chosen)]
    cases = Cases.stack(case for case, _, _ in found)
    ln = np.asarray([value for _, value, _ in found])
    sigmas = step_sigma(cases) if quantity is Quantity.STEP else memory_sigma(cases)
    sigma = np.broadcast_to(sigmas, ln.shape)
    evidence = tuple(
        _evidence(case, run, quantity, ln[i], sigma[i]) for i, (case, _, run) in enumerate(found)
    )
    return Source(name=name, cases=cases, evidence=evidence, ln=ln, sigma=sigma)


def _evidence(case: Case, run: str, quantity: Quantity, ln: float, sigma: float) -> Evidence:
    """One row as a run measured well: only what differs between runs is left of its noise."""
    noise = getattr(load_calibration(), f"{quantity}_between_runs")
    measured: dict[str, Any] = {str(quantity): Residual(ln=float(ln), sigma=float(sigma), noise=noise)}
    return Evidence(
        run=run,
        framework=case.framework.name,
        gpu=case.cluster.gpu.name,
        model=case.architecture.name,
        sequence_tokens=case.workload.sequence_tokens,
        layout=case.layout,
        steps=1000,
        **measured,
    )


def fitted(sources: Sequence[Source], quantity: Quantity) -> dict[str, float]:
    """The shares under which the residuals of all sources are most likely (their overall scale left free)."""
    blocks = [covariances(source.evidence) for source in sources]
    values = [np.clip(source.ln / source.sigma, -OUTLIER, OUTLIER) for source in sources]
    noise = getattr(load_calibration(), f"{quantity}_between_runs")

    def cost(point: Array) -> float:
        share = np.exp(np.append(point[:-1], 0.0))
        share, scale, total = share / share.sum(), float(np.exp(point[-1])), 0.0
        for source, block, value in zip(sources, blocks, values, strict=True):
            covariance = scale * (np.tensordot(share[:-1], block, 1) + share[-1] * np.eye(len(source)))
            covariance += np.diag((noise / source.sigma) ** 2 + 1e-6)
            _, determinant = np.linalg.slogdet(covariance)
            likelihood = determinant + value @ np.linalg.solve(covariance, value)
            total += likelihood / np.sqrt(len(source))
        return float(total + 0.02 * (point[:-1] ** 2).sum())

    found = minimize(cost, np.zeros(len(SHARES) + 1), method="L-BFGS-B", bounds=[(-6, 6)] * (len(SHARES) + 1))
    share = np.exp(np.append(found.x[:-1], 0.0))
    return dict(zip(SHARES, np.round(share / share.sum(), 3).tolist()[:-1], strict=True))


def between_runs(rows: Iterable[Mapping[str, str]], quantity: str) -> float:
    """Deviation of ln between published runs of one source with equal inputs, by their median variance.

    Most are pairs: the median of a chi-square of one degree of freedom is 0.455 of its mean.
    """
    column, usable = _COLUMNS_OF[quantity]
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if row[usable] == "1" and row[column]:
            key = (row["id"].split("-")[0], *(row[name] for name in COLUMNS))
            groups.setdefault(key, []).append(float(np.log(float(row[column]))))
    variances = [np.var(values, ddof=1) for values in groups.values() if len(values) > 1]
    return round(float(np.sqrt(np.median(variances) / 0.455)), 4)


def parameters(shares: Mapping[str, float], quantity: Quantity) -> Parameters:
    """The package's calibration constants with these shares."""
    return load_calibration().replace(**{f"{quantity}_share_{name}": value for name, value in shares.items()})


def judged(sources: Sequence[Source], quantity: Quantity) -> dict[str, Any]:
    """Per source and in the mean: median |error| and interval coverage, by how many runs were known."""
    table = {}
    for source in sources:
        others = [other for other in sources if other is not source]
        constants = parameters(fitted(others, quantity), quantity)
        table[source.name] = {"n": len(source)} | {
            str(k): _judge(source, k, quantity, constants) for k in KNOWN if k < len(source)
        }
    mean = {
        str(k): {
            figure: round(
                float(np.mean([row[str(k)][figure] for row in table.values() if str(KNOWN[-1]) in row])), 4
            )
            for figure in ("before", "after", "inside_before", "inside_after", "width")
        }
        for k in KNOWN
    }
    return {"mean_of_sources_with_more_than_10": mean, "sources": table}


def _judge(source: Source, known: int, quantity: Quantity, constants: Parameters) -> dict[str, float]:
    """Medians over the rows not known, averaged over draws of the known ones; all from one seed."""
    random = np.random.default_rng(1)
    figures = []
    for _ in range(DRAWS if known else 1):
        order = random.permutation(len(source))
        some = Calibration(evidence=tuple(source.evidence[i] for i in order[:known]))
        rest = order[known:]
        sigma = source.sigma[rest]
        found = correct(some, source.take(rest), sigma, quantity, constants)
        before, after = source.ln[rest], source.ln[rest] - np.log(found.factor)
        left = sigma * found.sigma_factor
        figures.append(
            (
                np.median(np.abs(np.expm1(-before))),
                np.median(np.abs(np.expm1(-after))),
                np.mean(np.abs(before) <= EIGHTY * sigma),
                np.mean(np.abs(after) <= EIGHTY * left),
                np.mean(found.sigma_factor),
            )
        )
    names = ("before", "after", "inside_before", "inside_after", "width")
    return dict(zip(names, np.round(np.mean(figures, axis=0), 4).tolist(), strict=True))


def show(quantity: Quantity, document: Mapping[str, Any]) -> None:
    """The table of one quantity."""
    print(f"\n{quantity}: median |error| % of the runs not known, before -> after (80 % interval's coverage)")
    heads = "".join(f"{f'{k} known':>26}" for k in KNOWN)
    print(f"{'source':12}{'n':>5}{heads}")
    for name, row in document["sources"].items():
        print(f"{name:12}{row['n']:5}" + "".join(_cell(row.get(str(k))) for k in KNOWN))
    mean = document["mean_of_sources_with_more_than_10"]
    print(f"{'mean':17}" + "".join(_cell(mean[str(k)]) for k in KNOWN))
    print("interval's width: " + ", ".join(f"{k} known {mean[str(k)]['width']:.2f}" for k in KNOWN))
    print("shares: " + ", ".join(f"{name} {value:.2f}" for name, value in document["shares"].items()))


def _cell(figures: Mapping[str, float] | None) -> str:
    if figures is None:
        return " " * 26
    before, after = 100 * figures["before"], 100 * figures["after"]
    return f"{before:8.1f} -> {after:5.1f} ({figures['inside_after']:4.0%})".rjust(26)


def write(shares: Mapping[str, Mapping[str, float]], noise: Mapping[str, float], date: str) -> None:
    """Replace the shares and the noise between runs in data/calibration.json."""
    fitted_on = "published runs, residuals with the row's source left out; maximum likelihood"
    current = load_calibration()
    for quantity, values in shares.items():
        current = (
            parameters(values, Quantity(quantity))
            if current is load_calibration()
            else current.replace(**{f"{quantity}_share_{name}": value for name, value in values.items()})
        )
    current = current.replace(**{f"{quantity}_between_runs": value for quantity, value in noise.items()})
    entries = []
    for name in current:
        entry = current.entry(name)
        is_share, is_noise = "_share_" in name, name.endswith("_between_runs")
        entries.append(
            type(entry)(
                name=name, value=getattr(current, name), prior=entry.prior, sigma_ln=entry.sigma_ln,
                unit=entry.unit, meaning=entry.meaning, source=entry.source,
                fitted_on=fitted_on if is_share else REPLICATES if is_noise else "", date=date or entry.date,
            )
        )  # fmt: skip
    save(DATA / "calibration.json", entries, date=date or entries[0].date)


if __name__ == "__main__":
    main()
