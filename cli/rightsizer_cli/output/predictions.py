"""`estimate --runs`: a prediction for each row of a table of runs, in order, as CSV."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from rightsizer_cli.requests.files import write_whole
from rightsizer_cli.requests.runs_table import read_table
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.estimate.prediction import Prediction, gpus, predict
from rightsizer_engine.estimate.uncertainty import Z_80
from rightsizer_engine.published.rows import case_from_row

Row = Mapping[str, str]

COLUMNS = (
    "id",
    "pred_step_time_s",
    "pred_lo_s",
    "pred_hi_s",
    "pred_tokens_per_s_per_gpu",
    "pred_allocated_gib",
    "pred_reserved_gib",
    "pred_device_gib",
    "status",
    "reason",
)
"""The columns written; `pred_lo_s` to `pred_hi_s` is the 80 % interval of the step time."""

GIB = 2.0**30
CHUNK_ROWS = 4096
"""Rows per batch; bounds memory on large files."""


def estimate_runs(runs: Path, out: Path, *, framework_unknown: bool = False) -> tuple[int, int]:
    """Write a prediction for every row of `runs` to `out`; (rows predicted, rows unsupported)."""
    rows = read_table(runs)
    if framework_unknown:
        rows = [{**row, "framework": ""} for row in rows]
    predictions = predict_rows(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(predictions)
    write_whole(out, lambda draft: _write(draft, text.getvalue()), field="--out")
    predicted = sum(p["status"] == "ok" for p in predictions)
    return predicted, len(predictions) - predicted


def predict_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    """One prediction per row, in order; an unsupported row has its reason."""
    cases: list[Case | str] = [_case(row) for row in rows]
    supported = [i for i, case in enumerate(cases) if isinstance(case, Case)]
    predicted: dict[int, dict[str, str]] = {}
    for start in range(0, len(supported), CHUNK_ROWS):
        chunk = supported[start : start + CHUNK_ROWS]
        stacked = Cases.stack(case for i in chunk if isinstance(case := cases[i], Case))
        predicted |= zip(chunk, _figures(stacked), strict=True)
    return [
        {"id": row["id"]} | predicted.get(i, {"status": "unsupported"}) | _said(case, predicted.get(i))
        for i, (row, case) in enumerate(zip(rows, cases, strict=True))
    ]


def _said(case: Case | str, cells: Row | None) -> dict[str, str]:
    """The reason of a row: why it is unsupported, or what was assumed for it."""
    if isinstance(case, str):
        return {"reason": case}
    if cells is None or cells["status"] != "ok":
        return {}
    return {"reason": "; ".join(case.assumptions)}


def _case(row: Row) -> Case | str:
    """The row's case, or the reason why it is unsupported."""
    try:
        return case_from_row(row)
    except RightsizerError as error:
        return str(error)


def _figures(cases: Cases) -> Iterable[dict[str, str]]:
    """The predicted cells of each case."""
    prediction = predict(cases)
    columns = dict(zip(COLUMNS[1:8], _arrays(cases, prediction), strict=True))
    n = max(np.size(values) for values in columns.values())
    full = {name: np.broadcast_to(values, (n,)) for name, values in columns.items()}
    for i in range(n):
        cells = {name: float(values[i]) for name, values in full.items()}
        if all(map(math.isfinite, cells.values())):
            yield {name: f"{value:.6g}" for name, value in cells.items()} | {"status": "ok", "reason": ""}
        else:
            yield {
                "status": "unsupported",
                "reason": "the dimensions are outside what the engine can compute",
            }


def _arrays(cases: Cases, prediction: Prediction) -> tuple[np.ndarray, ...]:
    spread = np.exp(Z_80 * prediction.step_sigma)
    memory = prediction.memory
    return (
        prediction.step_s,
        prediction.step_s / spread,
        prediction.step_s * spread,
        prediction.tokens_per_s / gpus(cases.layout),
        memory.allocated_bytes / GIB,
        memory.reserved_bytes / GIB,
        memory.device_bytes / GIB,
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
