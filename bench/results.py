"""Files in bench/results: tables of rows as CSV, documents as JSON with one line for each flat object."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def dumps(value: Any, indent: str = "") -> str:
    """JSON in which a nested object or list that is flat takes one line."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    flat = not any(isinstance(part, dict | list | tuple) for part in parts)
    if flat and (indent or not isinstance(value, dict)):
        return json.dumps(value)
    inner = indent + " "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {dumps(part, inner)}" for key, part in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + dumps(part, inner) for part in value) + f"\n{indent}]"


def write_json(path: Path, document: Any) -> None:
    """Write a document of results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps(document) + "\n", encoding="utf-8")


def write_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table of results; every row has the same columns."""
    with (RESULTS / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a table of results, all numbers but the `id`; none if it was never written."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{k: v if k == "id" else float(v) for k, v in row.items()} for row in csv.DictReader(file)]
