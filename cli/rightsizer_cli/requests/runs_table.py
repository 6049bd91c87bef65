"""A table of runs as CSV: its rows as text, by column."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from rightsizer_api.untrusted_text import read_text
from rightsizer_cli.requests.usage_errors import OptionError

_REQUIRED = ("id", "seq_len", "gpu")
"""Required columns. Other missing columns count as empty."""


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of the file that --runs names."""
    return read_rows(read_text(path, field="--runs"), path=str(path))


def read_rows(text: str, *, path: str) -> list[dict[str, str]]:
    """The rows of a CSV with a header; an error if a required column or every row is missing."""
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="")
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        rows = [_cells(row) for row in reader]
    except csv.Error as error:
        raise OptionError(
            "--runs", value=path, remedy=f"is not CSV: line {reader.line_num}: {error}"
        ) from None
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        raise OptionError(
            "--runs",
            value=path,
            remedy=f"lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
        )
    if not rows:
        raise OptionError("--runs", value=path, remedy="has no rows below its header")
    return rows


def _cells(row: Mapping[str | None, object]) -> dict[str, str]:
    return {str(k).strip(): v if isinstance(v, str) else "" for k, v in row.items() if k}
