"""Fit the frameworks' part of published step times, and judge the engine on sources left out of the fit.

    python -m bench.fit.step_time [REFERENCE] [--date 2026-11-21] [--dry]

The hardware's curves stay as measured (bench/fit/curves.py). Sources are weighted by the square root of their
rows. Writes data/step_time.json and bench/results/step_time.csv: ln(predicted / measured) of each row with
all sources seen, with its own left out, with the framework withheld too, and of the null model.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from bench.fit.gauss_newton import Linear, Prior, solve, within
from bench.fitting import DATA, arguments, save, summary
from bench.reference import reference
from bench.results import write_rows
from bench.step_rows import StepRows, full_rate_s, load, take, weights

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.estimate.parameters import Parameters, load_curves, load_step_time
from rightsizer_engine.estimate.step import step_time
from rightsizer_engine.estimate.step.host_time import HOST_CLASSES
from rightsizer_engine.estimate.step.inputs import StepInputs, step_inputs
from rightsizer_engine.estimate.step.kernels import GENERATIONS

SINGLE_SOURCE_ROWS = 300
"""Rows of one source that enter the fit at most: the rest of a large sweep tells nothing new."""
PRICED = (
    "accumulate", "host_",
    "step_", "elementwise", "cast_", "wide_share", "permute", "dequantise", "adapter", "tensor_",
    "data_", "sharding", "transfer", "loss_", "optimizer", "expert_exposed",
    "expert_wait_s", "node_jitter", "p2p_", "ring_",
)  # fmt: skip
"""Parameters that act after the kernels are priced: changing them alone needs no new kernels."""


_KEYS = (*HOST_CLASSES, *GENERATIONS)


def fitted_names(parameters: Parameters) -> list[str]:
    """Names of the parameters that are fitted: their prior has a width, and no microbenchmark fixes them."""
    settled = set(load_curves())
    refined = {
        "ring_latency_s", "ring_step_s", "nvlink_fraction", "flash_chain_s_per_token", "wave_exponent",
        "fp8_over_bf16_hopper", "fp8_over_bf16_blackwell", "fp4_over_bf16",
    }  # fmt: skip
    names = [name for name in parameters if parameters.entry(name).sigma_ln > 0]
    return [name for name in names if name not in settled or name in refined]


def residuals_of(rows: StepRows, index: Array, parameters: Parameters) -> Callable[[Array], Array]:
    """ln(predicted / measured) of the rows at `index` as a function of ln(parameters)."""
    cases, target = take(rows.cases, index), np.log(rows.measured_s[index])
    names = fitted_names(parameters)
    deep = [name for name in names if not name.startswith(PRICED)]
    known: dict[tuple[float, ...], StepInputs] = {}

    def residuals(point: Array) -> Array:
        trial = parameters.replace(**dict(zip(names, np.exp(point).tolist(), strict=True)))
        key = tuple(getattr(trial, name) for name in deep)
        if key not in known:
            known.clear()
            known[key] = step_inputs(cases, trial)
        facts = dataclasses.replace(known[key], parameters=trial)
        return np.asarray(np.log(step_time.price(facts).total_s) - target)

    return residuals


def fit_rows(rows: StepRows) -> Array:
    """The rows that enter the fit: of a source with more than SINGLE_SOURCE_ROWS, an even sample."""
    kept = []
    for source in np.unique(rows.source):
        mine = np.flatnonzero(rows.source == source)
        step = max(1.0, len(mine) / SINGLE_SOURCE_ROWS)
        kept.append(mine[np.unique(np.floor(np.arange(0, len(mine), step)).astype(int))])
    return np.sort(np.concatenate(kept))


def prior_of(parameters: Parameters) -> Prior:
    """The priors of the fitted names."""
    return Prior.of([parameters.entry(name) for name in fitted_names(parameters)], family)


def family(name: str) -> str:
    """The term of which the parameter is one class's or generation's value, else its own name."""
    return next((name.removesuffix(f"_{key}") for key in _KEYS if name.endswith(f"_{key}")), name)


def errors(rows: StepRows, parameters: Parameters) -> Array:
    """ln(predicted / measured) of every row."""
    return np.asarray(np.log(step_time.estimate(rows.cases, parameters).total_s / rows.measured_s))


def fit(rows: StepRows, parameters: Parameters) -> Linear:
    """The fit to all sources."""
    index = fit_rows(rows)
    prior = prior_of(parameters)
    residuals = residuals_of(rows, index, parameters)
    return solve(residuals, prior.mean.copy(), weights(rows.source[index], rows.judged[index]), prior)


def at(parameters: Parameters, point: Array) -> Parameters:
    """The parameters with the fitted ones at `point`."""
    names = fitted_names(parameters)
    return parameters.replace(**dict(zip(names, np.exp(point).tolist(), strict=True)))


def left_out(
    rows: StepRows, shown: Sequence[StepRows], linear: Linear, parameters: Parameters
) -> tuple[list[Array], dict[str, Array]]:
    """Errors on each source by a fit without it, for each variant of the rows."""
    index, prior = fit_rows(rows), prior_of(parameters)
    source, judged = rows.source[index], rows.judged[index]
    found = [np.full(len(rows.rows), np.nan) for _ in shown]
    folds: dict[str, Array] = {}
    for name in np.unique(rows.source):
        other = source != name
        part = Linear(point=linear.point, residual=linear.residual[other], jacobian=linear.jacobian[other])
        folds[str(name)] = within(part, weights(source[other], judged[other]), prior, rounds=20)
        trial, mine = at(parameters, folds[str(name)]), np.flatnonzero(rows.source == name)
        for some, error in zip(shown, found, strict=True):
            predicted = step_time.estimate(take(some.cases, mine), trial).total_s
            error[mine] = np.log(predicted / some.measured_s[mine])
    return found, folds


def null_errors(rows: StepRows, known: StepRows | None = None) -> Array:
    """The null model: the best constant utilisation per GPU type and precision over `known` other sources."""
    known = known or rows
    ideal, basis = (np.log(full_rate_s(r.cases) / r.measured_s) for r in (rows, known))
    keys, seen_keys = (
        np.char.add(np.char.add(r.cases.gpu.name, " "), r.cases.workload.precision) for r in (rows, known)
    )
    weight, error = weights(known.source, known.judged), np.empty(len(ideal))
    for name in np.unique(rows.source):
        mine, others = rows.source == name, known.source != name
        for key in np.unique(keys[mine]):
            alike = others & (seen_keys == key)
            used, here = alike if alike.any() else others, mine & (keys == key)
            error[here] = ideal[here] - _median(basis[used], weight[used])
    return error


def _median(values: Array, weight: Array) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, 0.5 * total[-1])])


def table(source: Array, wave: Array, columns: dict[str, Array]) -> str:
    """Mean, median, 90th percentile of |error| and bias by source, by wave and over all, in percent."""
    lines = [f"{'source':8} {'n':>5}  " + "  ".join(f"{name:^28}" for name in columns)]
    groups = {str(name): source == name for name in np.unique(source)}
    rest = source != "VTRAIN"
    groups |= {f"WAVE {name}": rest & (wave == name) for name in np.unique(wave)}
    groups |= {"ALL": source != "", "-VTRAIN": rest}
    for name, mine in groups.items():
        cells = []
        for error in columns.values():
            s = summary(error[mine])
            cells.append(
                f"{s['mean_pct']:6.1f} {s['median_pct']:6.1f} {s['p90_pct']:6.1f} {s['bias_pct']:+6.1f}"
            )
        lines.append(f"{name:8} {int(mine.sum()):5d}  " + "  ".join(f"{cell:^28}" for cell in cells))
    means = [
        np.mean([summary(e[source == n])["median_pct"] for n in np.unique(source)]) for e in columns.values()
    ]
    lines.append("mean of source medians: " + "  ".join(f"{mean:.2f}" for mean in means))
    return "\n".join(lines)


def write(
    best: Parameters, rows: StepRows, columns: dict[str, Array], folds: dict[str, Array], date: str
) -> None:
    """The engine's data file, and each row's errors for the intervals and documents."""
    names, curves = fitted_names(best), set(load_curves())
    spread = dict(zip(names, np.std([*folds.values()], axis=0).tolist(), strict=True)) if folds else {}
    entries = [
        dataclasses.replace(best.entry(name), value=getattr(best, name), residual=None, fitted_on="", date="")
        for name in load_step_time()
        if name not in curves or name in names
    ]
    save(
        DATA / "step_time.json",
        entries,
        fitted_on=f"{len(rows.rows)} published step times: {', '.join(np.unique(rows.source))}",
        date=date,
        residual=summary(columns["seen"])["median_pct"] / 100,
    )
    flat = [
        {"id": row["id"], **{name: round(float(error[i]), 4) for name, error in columns.items()}}
        for i, row in enumerate(rows.rows)
        if rows.judged[i]
    ]
    write_rows("step_time", flat)
    for name, value in sorted(spread.items(), key=lambda item: -item[1])[:12]:
        print(f"  spread over folds {name:32s} {value:.2f} in ln")


def main() -> None:
    """Fit, judge, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--dry", action="store_true", help="print only")
    given = parser.parse_args()
    folder, start = reference(given.reference), load_step_time()
    rows, withheld = load(folder, notes=True), load(folder, notes=True, blind=True)
    forgotten, untold = load(folder, notes=True, forget=True), load(folder, forget=True)
    print(f"{int(rows.judged.sum())} of {rows.usable} usable rows supported")
    linear = fit(rows, start)
    best = at(start, linear.point)
    (out, kept, blind, plain), folds = left_out(rows, [forgotten, rows, withheld, untold], linear, start)
    columns = {
        "seen": errors(rows, best),
        "left_out": out,
        "profile_kept": kept,
        "blind": blind,
        "untold": plain,
    }
    columns["null"] = null_errors(rows)
    for name in fitted_names(best):
        entry, value = best.entry(name), getattr(best, name)
        far = float(np.log(value / entry.prior) / entry.sigma_ln)
        print(f"{name:32s} {value:10.4g}  prior {entry.prior:9.3g}  {far:+.1f} sigma")
    print(
        table(
            rows.source[rows.judged], rows.wave[rows.judged], {k: v[rows.judged] for k, v in columns.items()}
        )
    )
    print("incomplete rows (recompute not stated):")
    other = ~rows.judged
    print(table(rows.source[other], rows.wave[other], {k: v[other] for k, v in columns.items()}))
    if not given.dry:
        write(best, rows, columns, folds, given.date)


if __name__ == "__main__":
    main()
