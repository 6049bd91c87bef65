"""The file of the user's measured runs: read at sizing, extended by `calibrate` and by local runs."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rightsizer_api.untrusted_text import read_text
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.observation import Observation, dumps, from_document, loads, observe, timed
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.evidence import Calibration
from rightsizer_engine.search.calibrate import calibration, merge_observations
from rightsizer_engine.search.types import Option, Request
from rightsizer_launch.running.run_totals import warm_steps
from rightsizer_launch.worker.progress import Record

ENV_FILE = "RIGHTSIZER_CALIBRATION"
"""Path of the calibration file instead of the default; empty: no calibration."""


def default_path(environ: Mapping[str, str] | None = None) -> Path | None:
    """The calibration file: $RIGHTSIZER_CALIBRATION, else in $XDG_DATA_HOME or ~/.local/share; None: none."""
    environ = os.environ if environ is None else environ
    named = environ.get(ENV_FILE)
    if named is not None:
        return Path(named).expanduser() if named.strip() else None
    data = environ.get("XDG_DATA_HOME") or str(Path(environ.get("HOME", "~")) / ".local" / "share")
    return Path(data).expanduser() / "rightsizer" / "calibration.json"


def read(path: Path, *, field: str = "calibration") -> tuple[Observation, ...]:
    """The observations in a calibration file; none if there is no file. `field` is what named it."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(
                field, value=str(path), remedy="is not a regular file"
            )  # it could not be replaced
    except OSError as error:
        raise InputError(field, value=str(path), remedy=f"cannot be read: {_reason(error)}") from None
    return loads(read_text(path, field=field), name=f"{field} {path}") if path.exists() else ()


def load(path: Path | None = None) -> Calibration:
    """The calibration from the user's runs; empty if there are none."""
    where = path or default_path()
    return calibration(read(where)) if where is not None else Calibration()


def calibrated(request: Request, path: Path | None = None) -> Request:
    """The request with the user's calibration, if there is any."""
    found = load(path)
    return replace(request, calibration=found) if found else request


def add(new: Iterable[Observation], path: Path, *, field: str = "calibration") -> tuple[Observation, ...]:
    """Add observations to a calibration file, each run once; returns the file's new content."""
    with _alone(path, field):
        both = merge_observations(read(path, field=field), new)
        write(both, path, field=field)
    return both


def write(observations: Iterable[Observation], path: Path, *, field: str = "calibration") -> None:
    """Replace a calibration file atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(dumps(observations), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise InputError(field, value=str(path), remedy=f"cannot be written: {_reason(error)}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(path: Path, field: str) -> Iterator[None]:
    """Hold the file's lock: two runs that end together must both be recorded."""
    import fcntl  # only POSIX has it; plans are sized without

    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        holder = lock.open("a")
    except OSError as error:
        raise InputError(field, value=str(path), remedy=f"cannot be written: {_reason(error)}") from None
    with holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        yield


def observed(
    request: Request,
    option: Option,
    *,
    run: str,
    steps: Iterable[Record],
    attempt: int,
    start_s: float = 0.0,
    checkpoint_s: float = 0.0,
) -> tuple[Observation, ...]:
    """The measurements of `option` in `attempt`; empty after too few steps or on other workers."""
    steps = tuple(steps)
    warm = warm_steps(steps, attempt)
    if not warm or warm[-1].world != option.gpus:
        return ()
    case = Case(
        architecture=request.architecture,
        workload=replace(request.workload, global_batch_sequences=option.global_batch_sequences),
        cluster=option.cluster,
        framework=request.framework,
        layout=option.layout,
    )
    peak_bytes = max((r.peak_bytes or 0.0 for r in steps if _same_world(r, warm[-1])), default=0.0)
    observation = observe(
        case, run=run, step_s=[record.step_s for record in warm], allocated_bytes=peak_bytes
    )
    if observation is None:
        return ()
    return (timed(observation, start_s=start_s, checkpoint_s=checkpoint_s),)


def _same_world(one: Record, last: Record) -> bool:
    return (one.attempt, one.world) == (last.attempt, last.world)


def record(report: Mapping[str, Any], path: Path | None = None) -> int:
    """Add a finished run's report to the calibration; the number of observations, 0 if it is switched off."""
    where, observations = path or default_path(), report_observations(report, name="report")
    if where is None or not observations:
        return 0
    add(observations, where)
    return len(observations)


def report_observations(report: object, *, name: str) -> tuple[Observation, ...]:
    """The observations in a run's report.json (its key `observations`)."""
    if not isinstance(report, Mapping) or not isinstance(report.get("observations"), list):
        raise InputError(
            name, value=_shown(report), remedy="is not a run report: it has no list `observations`"
        )
    documents = report["observations"]
    return tuple(from_document(d, name=f"{name}: observations[{i}]") for i, d in enumerate(documents))


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:40]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
