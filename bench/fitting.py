"""Robust least squares on ln(predicted / measured) with priors on ln(parameter), and the data it reads."""

import argparse
import csv
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rightsizer_engine.estimate.parameters import Parameter, Parameters

DATA = Path(__file__).resolve().parents[1] / "sizing" / "rightsizer_engine" / "data"
CORRECTIONS = Path(__file__).resolve().with_name("corrections.csv")
WAVES = {"1": "published_runs.csv", "2": "published_runs_wave2.csv"}
"""The tables of published runs, oldest first: each was kept back from the fits before it came."""
SCALE = 0.12
"""ln error at which soft-L1 turns from square to linear."""
SPREAD = 0.10
"""Standard deviation of one observation's ln error."""


def arguments(description: str | None, *, dated: bool = True) -> argparse.ArgumentParser:
    """The command line of a bench on the reference tables: their folder and, for a fit, its date."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference", nargs="?", help="folder of the reference tables")
    if dated:
        today = dt.datetime.now(dt.UTC).date().isoformat()
        parser.add_argument("--date", default=today, help="the date that a fit carries, today's by default")
    return parser


def read(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of one reference table; published runs are corrected from their sources' own files."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if name in WAVES.values():
        _correct({row["id"]: row for row in rows})
    return rows


def runs(folder: Path) -> list[dict[str, str]]:
    """The published runs of all waves, each with its `wave`."""
    return [row | {"wave": wave} for wave, name in WAVES.items() for row in read(folder, name)]


def _correct(rows: Mapping[str, dict[str, str]]) -> None:
    """Correct misread cells, each with its reason; measurements only if they contradict themselves."""
    with CORRECTIONS.open(encoding="utf-8", newline="") as file:
        for fix in csv.DictReader(file):
            row = rows.get(fix["id"])
            if row is not None and row[fix["column"]] == fix["printed"]:
                row[fix["column"]] = fix["corrected"]


def robust(residual: Any) -> Any:
    """The signed square root of twice the soft-L1 cost, so that a plain least-squares solver minimises it."""
    scaled = residual / SCALE
    return np.sign(residual) * SCALE * np.sqrt(2 * (np.sqrt(1 + scaled**2) - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted values by name, and the cost."""

    values: Mapping[str, float]
    cost: float


def fit(
    predict: Callable[[Parameters], Any],
    measured: Any,
    weights: Any,
    parameters: Parameters,
    names: Sequence[str],
    *,
    rounds: int = 15,
    start: Mapping[str, float] | None = None,
) -> Fit:
    """Fit `names` so that `predict` meets `measured`; weights multiply squared residuals."""
    entries = [parameters.entry(name) for name in names]
    prior = np.log([entry.prior for entry in entries])
    sigma = np.asarray([entry.sigma_ln for entry in entries])
    first = np.log([(start or {}).get(name, getattr(parameters, name)) for name in names])
    target, root = np.log(measured), np.sqrt(weights)

    def residuals(point: Any) -> Any:
        trial = parameters.replace(**dict(zip(names, np.exp(point).tolist(), strict=True)))
        error = np.log(predict(trial)) - target
        return np.concatenate([root * robust(error) / SPREAD, 0.5 * (point - prior) / sigma])

    from scipy.optimize import least_squares  # a second of import that reading tables does without

    solution = least_squares(residuals, first, method="trf", max_nfev=rounds, x_scale=sigma)
    return Fit(values=dict(zip(names, np.exp(solution.x).tolist(), strict=True)), cost=float(solution.cost))


def summary(error: Any) -> dict[str, float]:
    """Mean, median and 90th percentile of |ln error|, and its median (bias), in percent."""
    size = np.abs(error)
    return {
        "n": int(np.size(error)),
        "mean_pct": round(100 * float(np.mean(size)), 2),
        "median_pct": round(100 * float(np.median(size)), 2),
        "p90_pct": round(100 * float(np.percentile(size, 90)), 2),
        "bias_pct": round(100 * float(np.median(error)), 2),
    }


def save(path: Path, parameters: Sequence[Parameter], **common: Any) -> None:
    """Write parameters with their provenance, four significant digits each."""
    rows = []
    for entry in parameters:
        row: dict[str, Any] = {
            "name": entry.name,
            "value": float(f"{entry.value:.4g}"),
            "prior": float(f"{entry.prior:.4g}"),
            "sigma_ln": entry.sigma_ln,
            "unit": entry.unit,
            "meaning": entry.meaning,
        }
        row |= {
            k: getattr(entry, k) for k in ("source", "fitted_on", "date", "residual") if getattr(entry, k)
        }
        rows.append({k: v for k, v in row.items() if common.get(k) != v})
    path.write_text(json.dumps({**common, "parameters": rows}, indent=1) + "\n", encoding="utf-8")
