"""Measured runs of reports and tables, as observations that the calibration file takes."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from rightsizer_api.untrusted_text import read_text
from rightsizer_cli.requests.runs_table import read_table
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.domain.observation import Observation
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.estimate.evidence import Calibration
from rightsizer_engine.published.rows import case_from_row
from rightsizer_engine.search.calibrate import calibration
from rightsizer_engine.values import immutable
from rightsizer_launch.running.calibration import add, default_path, read, report_observations, write

GIB = 2.0**30
_ASSUMED_STEPS = 20
"""Steps behind a row's step_time_s where the table has no column `steps`: a guess."""


@immutable
class CalibrationUpdate:
    """The calibration in `file` before and after; `added` counts the new runs."""

    file: Path
    before: Calibration
    after: Calibration
    added: int
    skipped: tuple[str, ...] = ()


def update_calibration(
    file: Path | None, reports: Sequence[Path], runs: Path | None, *, reset: bool
) -> CalibrationUpdate:
    """Add the runs of reports and of a table to a file (the default: the user's), or reset it.

    Invalid input changes nothing.
    """
    path, field = file or default_path(), "--file" if file else "calibration"
    if path is None:
        raise OptionError("--file", value="", remedy="RIGHTSIZER_CALIBRATION is empty; name a file")
    before = () if reset else read(path, field=field)
    new = [one for report in reports for one in _reported(report)]
    skipped: tuple[str, ...] = ()
    if runs is not None:
        measured, skipped = _row_observations(read_table(runs), name=runs.name)
        new += measured
        if not measured:
            raise OptionError("--runs", value=str(runs), remedy=f"has no measured run: {skipped[0]}")
    if reset:
        write((), path, field=field)
        return CalibrationUpdate(file=path, before=Calibration(), after=Calibration(), added=0)
    kept = add(new, path, field=field) if new else before
    known = {one.run for one in before}
    return CalibrationUpdate(
        file=path,
        before=calibration(before),
        after=calibration(kept),
        added=len({one.run for one in new} - known),
        skipped=skipped,
    )


def _reported(path: Path) -> tuple[Observation, ...]:
    text = read_text(path, field="REPORT.json")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError("REPORT.json", value=str(path), remedy=f"is not JSON: {error}") from None
    observations = report_observations(document, name=str(path))
    if not observations:
        raise OptionError("REPORT.json", value=str(path), remedy="has no measured steps; too short a run")
    return observations


def _row_observations(
    rows: Iterable[dict[str, str]], *, name: str
) -> tuple[list[Observation], tuple[str, ...]]:
    """The measured rows of a table, and why the others are skipped."""
    observations, skipped = [], []
    for row in rows:
        step_s, peak_gib = _positive(row.get("step_time_s")), _positive(row.get("peak_memory_gib"))
        if not step_s and not peak_gib:
            skipped.append(f"{row['id']}: neither step_time_s nor peak_memory_gib")
            continue
        try:
            case = case_from_row(row)
        except RightsizerError as error:
            skipped.append(f"{row['id']}: {error}")
            continue
        steps = int(_positive(row.get("steps"))) or _ASSUMED_STEPS
        observations.append(
            Observation(
                run=f"{name}:{row['id']}",
                case=case,
                steps=steps if step_s else 0,
                step_s=step_s,
                allocated_bytes=peak_gib * GIB,
            )
        )
    return observations, tuple(skipped)


def _positive(text: str | None) -> float:
    """The number in a cell; 0 where there is none."""
    try:
        value = float(text or "nan")
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0
