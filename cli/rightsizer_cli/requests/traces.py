"""Traces of jobs as CSV, one job a line: read strictly, every mistake named by its line and column."""

import csv
import datetime as dt
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from rightsizer_api.untrusted_text import read_bytes, read_text
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.values import immutable

_SAMPLE = "philly_sample.csv"
"""The trace that comes with the package: every 40th job of Microsoft's Philly cluster."""

_REQUIRED = ("submitted_utc", "duration_s", "gpus")
_KNOWN = (*_REQUIRED, "deadline_utc")
_LONGEST_S = 10 * 366 * 86_400.0
_MOST_GPUS = 65_536
_MOST_BYTES = 2**30


@immutable
class TraceRow:
    """One job of the trace; times in seconds since the epoch, None if the trace has none."""

    submitted_s: float
    duration_s: float
    gpus: int
    deadline_s: float | None = None


@immutable
class Trace:
    """The jobs in the order in which they were submitted, and the name of where they are from."""

    name: str
    rows: tuple[TraceRow, ...]


def read_trace(path: Path | None) -> Trace:
    """The trace in a CSV file, plain or gzipped; without one, the sample."""
    if path is None:
        text = files("rightsizer_cli").joinpath("data", _SAMPLE).read_text("utf-8")
        return Trace(name=_SAMPLE, rows=_rows(text, _SAMPLE))
    return Trace(name=path.name, rows=_rows(_text(path), path.name))


def _text(path: Path) -> str:
    if path.suffix != ".gz":
        return read_text(path, field="TRACE")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(read_bytes(path, field="TRACE"))) as packed:
            raw = packed.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise OptionError("TRACE", value=str(path), remedy="unpacks to more than 1 GiB")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise OptionError("TRACE", value=str(path), remedy="holds no text (UTF-8)") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise OptionError("TRACE", value=str(path), remedy="is no whole gzip file") from None


def _rows(text: str, name: str) -> tuple[TraceRow, ...]:
    lines = _lines(text, name)
    number, header = next(lines, (1, []))
    columns = _columns(header, f"{name}: line {number}")
    rows = [_row(columns, cells, f"{name}: line {line}") for line, cells in lines]
    if not rows:
        raise OptionError(name, value="", remedy="holds no jobs")
    return tuple(sorted(rows, key=lambda row: row.submitted_s))


def _lines(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Lines with their numbers; empty ones and comments (#) are passed over."""
    reader = csv.reader(io.StringIO(text), strict=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where = f"{name}: line {reader.line_num}"
            raise OptionError(where, value="", remedy=f"is no CSV: {error}") from None
        if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
            yield reader.line_num, cells


def _columns(header: list[str], where: str) -> list[str]:
    columns = [cell.strip() for cell in header]
    for name in _REQUIRED:
        if name not in columns:
            remedy = f"has no such column; a trace needs {', '.join(_REQUIRED)}, and may have the others"
            raise OptionError(f"{where}, {name}", value=",".join(columns)[:60], remedy=remedy)
    for name in _KNOWN:
        if columns.count(name) > 1:
            raise OptionError(f"{where}, {name}", value=name, remedy="is there twice")
    return columns


def _row(columns: list[str], cells: list[str], where: str) -> TraceRow:
    if len(cells) != len(columns):
        remedy = f"has {len(cells)} cells, the header {len(columns)} columns"
        raise OptionError(where, value=",".join(cells)[:60], remedy=remedy)
    by_name = {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}
    submitted_s = _cell(by_name, "submitted_utc", _moment_s, where)
    deadline_s = _optional(by_name, "deadline_utc", _moment_s, where)
    if deadline_s is not None and deadline_s <= submitted_s:
        field = f"{where}, deadline_utc"
        raise OptionError(field, value=by_name["deadline_utc"], remedy="is not after submitted_utc")
    return TraceRow(
        submitted_s=submitted_s,
        duration_s=_cell(by_name, "duration_s", _duration_s, where),
        gpus=int(_cell(by_name, "gpus", _gpus, where)),
        deadline_s=deadline_s,
    )


def _cell(row: Mapping[str, str], name: str, parse: Callable[[str], float], where: str) -> float:
    try:
        return parse(row[name])
    except ValueError as error:
        raise OptionError(f"{where}, {name}", value=row[name][:60], remedy=str(error)) from None


def _optional(row: Mapping[str, str], name: str, parse: Callable[[str], float], where: str) -> float | None:
    return _cell(row, name, parse, where) if row.get(name) else None


def _moment_s(text: str) -> float:
    remedy = "must be a moment in UTC such as 2017-10-03T08:15:00Z"
    try:
        moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError:
        raise ValueError(remedy) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)  # the column says that it is UTC
    return moment.timestamp()


def _number(text: str, remedy: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(remedy) from None
    if not math.isfinite(value) or "_" in text:
        raise ValueError(remedy)
    return value


def _duration_s(text: str) -> float:
    remedy = "must be seconds, above 0 and at most ten years"
    value = _number(text, remedy)
    if not 0 < value <= _LONGEST_S:
        raise ValueError(remedy)
    return value


def _gpus(text: str) -> float:
    remedy = f"must be a whole number of GPUs, 1 to {_MOST_GPUS}"
    value = _number(text, remedy)
    if value != int(value) or not 1 <= value <= _MOST_GPUS:
        raise ValueError(remedy)
    return value
