"""The value of a user's own runs: calibrate on k random runs of a source, predict its other runs.

    python -m bench.calibration [REFERENCE] [--fit] [--json FILE]

The residuals in bench/results/{step_time,memory}.csv come from fits without the row's source, so every
source stands for a user whose runs no fit has seen. For each source, maximum likelihood on the other sources
fits the shares of the variance (data/calibration.json). A moment fits the chance that runs of a stack have
errors in common: the agreement of two runs of one family (every source with one vote) over what the shares
predict. With --fit the values from all sources are written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.fit.uncertainty import deviation_left_out
from bench.fitting import DATA, arguments, runs, save
from bench.memory_rows import promoted
from bench.reference import reference
from bench.results import RESULTS, read_rows, write_json
from scipy.optimize import minimize

from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.familiarity import measured
from rightsizer_engine.estimate.correction import correct
from rightsizer_engine.estimate.evidence import Calibration, Evidence, Quantity, Residual
from rightsizer_engine.estimate.parameters import SHARES, Parameters, load_calibration
from rightsizer_engine.estimate.regression import covariances
from rightsizer_engine.estimate.uncertainty import Z_80
from rightsizer_engine.published.rows import COLUMNS, case_from_row

KNOWN = (0, 1, 3, 10)
DRAWS = 20
MOST_ROWS = 100
"""Of a source larger than this so many random rows: VTRAIN has a thousand."""
FEWEST_ROWS = 5
OUTLIER = 3.0
"""Residuals beyond so many sigmas count as so many when shares are fitted."""
REPLICATES = "published runs with equal inputs in one source"
CHANCES = (0.05, 0.95)
"""Bounds of the chance that runs have errors in common: a moment of few sources may leave [0, 1]."""
_RESIDUALS = {
    Quantity.STEP: ("step_time", "left_out"),
    Quantity.MEMORY: ("memory", "left_out_notes"),
}
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
    parser = arguments(__doc__)
    parser.add_argument("--fit", action="store_true", help="write data/calibration.json")
    parser.add_argument("--json", type=Path, default=RESULTS / "calibration.json", metavar="FILE")
    options = parser.parse_args()
    rows = {row["id"]: row for row in runs(reference(options.reference))}
    document: dict[str, Any] = {}
    shares: dict[str, Mapping[str, float]] = {}
    for quantity in Quantity:
        sources = load(rows, quantity)
        shares[quantity] = fitted(sources, quantity)
        document[quantity] = judged(sources, quantity) | {"fitted": shares[quantity]}
        show(quantity, document[quantity])
    write_json(options.json, document)
    if options.fit:
        write(shares, {quantity: between_runs(rows.values(), quantity) for quantity in shares}, options.date)


def load(rows: Mapping[str, Mapping[str, str]], quantity: Quantity) -> list[Source]:
    """The sources with enough rows, with the inputs from their notes, because a plan states all inputs."""
    file, column = _RESIDUALS[quantity]
    by_source: dict[str, list[tuple[Case, float, str]]] = {}
    for residual in read_rows(file):
        if residual["id"] in rows:
            case, run = case_from_row(promoted(rows[residual["id"]])), residual["id"]
            by_source.setdefault(run.split("-")[0], []).append((case, -residual[column], run))
    return [_source(name, runs, quantity) for name, runs in by_source.items() if len(runs) >= FEWEST_ROWS]


def _source(name: str, runs: list[tuple[Case, float, str]], quantity: Quantity) -> Source:
    if len(runs) > MOST_ROWS:
        chosen = np.random.default_rng(0).choice(len(runs), MOST_ROWS, replace=False)
        runs = [runs[i] for i in sorted(chosen)]
    cases = Cases.stack(case for case, _, _ in runs)
    ln = np.asarray([value for _, value, _ in runs])
    column = {Quantity.STEP: "step_time", Quantity.MEMORY: "memory"}[quantity]
    sigma = deviation_left_out(cases, np.full(ln.shape, name), measured(), column)
    evidence = tuple(_evidence(case, run, quantity, ln[i], sigma[i]) for i, (case, _, run) in enumerate(runs))
    return Source(name=name, cases=cases, evidence=evidence, ln=ln, sigma=sigma)


def _evidence(case: Case, run: str, quantity: Quantity, ln: float, sigma: float) -> Evidence:
    """One row as a long measured run: of its noise only the difference between runs remains."""
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
    """The calibration constants fitted to these sources: the shares and the chance that they apply."""
    shares = likeliest(sources, quantity)
    named = {f"{quantity}_share_{name}": value for name, value in zip(SHARES, shares, strict=True)}
    return named | {f"{quantity}_in_common": in_common(sources, shares)}


def likeliest(sources: Sequence[Source], quantity: Quantity) -> list[float]:
    """The maximum-likelihood shares for the residuals of all sources; the overall scale is free."""
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

    solution = minimize(
        cost, np.zeros(len(SHARES) + 1), method="L-BFGS-B", bounds=[(-6, 6)] * (len(SHARES) + 1)
    )
    share = np.exp(np.append(solution.x[:-1], 0.0))
    return [round(float(value), 3) for value in (share / share.sum())[:-1]]


def in_common(sources: Sequence[Source], shares: Sequence[float]) -> float:
    """The chance that runs of one family have errors in common: their agreement over what the shares predict.

    Large sources that err in one direction dominate the likelihood. Here every source has one vote: the mean
    product of two of its runs that share a family and not a configuration, as James and Stein shrink.
    """
    family, configuration = SHARES.index("family"), SHARES.index("configuration")
    agreed, predicted, spread = [], [], []
    for source in sources:
        block = covariances(source.evidence)
        value = np.clip(source.ln / source.sigma, -OUTLIER, OUTLIER)
        related = np.triu((block[family] > 0) & (block[configuration] == 0), 1)
        if related.any():
            agreed.append(np.outer(value, value)[related].mean())
            predicted.append(np.tensordot(np.asarray(shares), block, 1)[related].mean())
            spread.append(np.mean(value**2))
    chance = np.sum(agreed) / np.sum(spread) / np.mean(predicted)
    return round(float(np.clip(chance, *CHANCES)), 3)


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


def judged(sources: Sequence[Source], quantity: Quantity) -> dict[str, Any]:
    """Per source and on average: median |error| and interval coverage, by the number of known runs."""
    table = {}
    for source in sources:
        rest = [s for s in sources if s is not source]
        constants = load_calibration().replace(**fitted(rest, quantity))
        table[source.name] = {"n": len(source)} | {
            str(k): _judge(source, k, quantity, constants) for k in KNOWN if k < len(source)
        }
    return {"mean_of_sources_with_more_than_10": _means(table), "sources": table}


def _means(table: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Means over the sources with the most known runs, and the share of sources whose error grew."""
    result = {}
    for k in map(str, KNOWN):
        lost = [row[k]["after"] - row[k]["before"] for row in table.values() if k in row]
        result[k] = {
            figure: round(
                float(np.mean([row[k][figure] for row in table.values() if str(KNOWN[-1]) in row])), 4
            )
            for figure in ("before", "after", "inside_before", "inside_after", "width")
        } | {
            "hurt": round(float(np.mean(np.greater(lost, 0.0))), 2),
            "hurt_by_half_a_percent": round(float(np.mean(np.greater(lost, 0.005))), 2),
            "worst": round(max(lost), 4),
        }
    return result


def _judge(source: Source, known: int, quantity: Quantity, constants: Parameters) -> dict[str, float]:
    """Medians over the unknown rows, averaged over draws of the known rows; all from one seed."""
    random = np.random.default_rng(1)
    figures = []
    for _ in range(DRAWS if known else 1):
        order = random.permutation(len(source))
        calibration = Calibration(evidence=tuple(source.evidence[i] for i in order[:known]))
        rest = order[known:]
        sigma = source.sigma[rest]
        correction = correct(calibration, source.take(rest), sigma, quantity, constants)
        before, after = source.ln[rest], source.ln[rest] - np.log(correction.factor)
        corrected_sigma = sigma * correction.sigma_factor
        figures.append(
            (
                np.median(np.abs(np.expm1(-before))),
                np.median(np.abs(np.expm1(-after))),
                np.mean(np.abs(before) <= Z_80 * sigma),
                np.mean(np.abs(after) <= Z_80 * corrected_sigma),
                np.mean(correction.sigma_factor),
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
    print(
        "of all sources hurt (by over 0.5 %; worst): "
        + ", ".join(
            f"{k} known {mean[str(k)]['hurt']:.0%} ({mean[str(k)]['hurt_by_half_a_percent']:.0%};"
            f" {100 * mean[str(k)]['worst']:.1f})"
            for k in KNOWN[1:]
        )
    )
    print("fitted: " + ", ".join(f"{name} {value:.2f}" for name, value in document["fitted"].items()))


def _cell(figures: Mapping[str, float] | None) -> str:
    if figures is None:
        return " " * 26
    before, after = 100 * figures["before"], 100 * figures["after"]
    return f"{before:8.1f} -> {after:5.1f} ({figures['inside_after']:4.0%})".rjust(26)


def write(shares: Mapping[str, Mapping[str, float]], noise: Mapping[str, float], date: str) -> None:
    """Replace the shares, their chance and the noise between runs in data/calibration.json."""
    likely = "published runs, residuals with the row's source left out; maximum likelihood"
    moment = "published runs, residuals with the row's source left out; moments, every source one vote"
    current = load_calibration()
    for values in shares.values():
        current = current.replace(**values)
    current = current.replace(**{f"{quantity}_between_runs": value for quantity, value in noise.items()})
    origin = {"_share_": likely, "_in_common": moment, "_between_runs": REPLICATES}
    entries = [
        replace(
            current.entry(name),
            value=getattr(current, name),
            fitted_on=next((text for sign, text in origin.items() if sign in name), ""),
            date=date or current.entry(name).date,
        )
        for name in current
    ]
    save(DATA / "calibration.json", entries, date=date or entries[0].date)


if __name__ == "__main__":
    main()
