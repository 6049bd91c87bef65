"""Measurements of a run and their file format: an observation is the whole case and the measurements.

Predictions are not stored. They are recomputed when an observation is used, so that measured runs stay valid
across versions of the engine.
"""

import enum
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import numpy as np

from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.values import immutable

SCHEMA = "rightsizer.dev/calibration/v1"
"""The schema of a calibration file and of one observation in it."""

_LONGEST_S = 7 * 86400.0
"""The longest start-up or checkpoint that is believed."""

_STALL = 5.0
"""A step this many times slower than the median is a stall (checkpoint, restart), which goodput prices."""


@immutable
class Observation:
    """One measured run. `run` identifies it, so that it counts once. Zero bytes or seconds: not measured.

    `step_s` is the mean over `steps` steps, without the first and without stalls; `scatter` the standard
    deviation of ln(step seconds). `allocated_bytes` is the allocator's peak on the fullest rank. `start_s` is
    the time from the launch to the end of the first step, `checkpoint_s` the write time of a checkpoint.
    """

    run: str
    case: Case
    steps: int = 0
    step_s: float = 0.0
    scatter: float = 0.0
    allocated_bytes: float = 0.0
    start_s: float = 0.0
    checkpoint_s: float = 0.0


def observe(
    case: Case, *, run: str, step_s: Sequence[float] = (), allocated_bytes: float = 0.0
) -> Observation | None:
    """The observation of a run whose steps took `step_s` seconds each; None if there is nothing in it."""
    times = np.asarray([s for s in step_s if math.isfinite(s) and s > 0])
    times = times[1:] if times.size > 1 else times
    times = times[times <= _STALL * np.median(times)] if times.size else times
    if not times.size and not allocated_bytes > 0:
        return None
    return Observation(
        run=run,
        case=case,
        steps=int(times.size),
        step_s=float(times.mean()) if times.size else 0.0,
        scatter=float(np.log(times).std(ddof=1)) if times.size > 2 else 0.0,
        allocated_bytes=max(0.0, allocated_bytes),
    )


def timed(some: Observation, *, start_s: float, checkpoint_s: float) -> Observation:
    """The observation with its start-up and write time; what no clock can mean counts as not measured."""
    start, checkpoint = (s if 0 < s <= _LONGEST_S else 0.0 for s in (start_s, checkpoint_s))
    return replace(some, start_s=start, checkpoint_s=checkpoint)


def dumps(observations: Iterable[Observation]) -> str:
    """A calibration file."""
    documents = [to_document(o) for o in observations]
    return json.dumps({"schema": SCHEMA, "observations": documents}, indent=1) + "\n"


def loads(text: str, *, name: str = "calibration") -> tuple[Observation, ...]:
    """The observations of a calibration file; `name` is its path, for errors."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(name, value=text[:40], remedy=f"is no calibration file: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        schema = document.get("schema") if isinstance(document, dict) else text[:40]
        raise InputError(name, value=schema, remedy=f"is no calibration file: its schema must be {SCHEMA}")
    observations = document.get("observations")
    if not isinstance(observations, list):
        raise InputError(f"{name}: observations", value=observations, remedy="must be a list")
    return tuple(from_document(o, name=f"{name}: observations[{i}]") for i, o in enumerate(observations))


def to_document(some: Observation) -> dict[str, Any]:
    """One observation as plain JSON values."""
    case = some.case
    nouns = {
        name: _document(getattr(case, name)) for name in ("architecture", "workload", "cluster", "layout")
    }
    return {
        "run": some.run,
        "framework": case.framework.name,
        **nouns,
        "measured": {
            "steps": some.steps,
            "stepSeconds": some.step_s,
            "scatter": some.scatter,
            "allocatedBytes": some.allocated_bytes,
            "startSeconds": some.start_s,
            "checkpointSeconds": some.checkpoint_s,
        },
    }


def from_document(document: object, *, name: str = "observation") -> Observation:
    """The observation in plain JSON values; fields of a later version are ignored."""
    if not isinstance(document, Mapping):
        raise InputError(name, value=document, remedy="must be a mapping")
    measured = _mapping(document, "measured", name)
    try:
        profile = framework(str(document.get("framework", "")))
    except RightsizerError as error:
        raise InputError(f"{name}: framework", value=document.get("framework"), remedy=str(error)) from None
    architecture, workload, cluster, layout = (
        _from_fields(noun, _mapping(document, key, name), f"{name}: {key}")
        for key, noun in (
            ("architecture", Architecture), ("workload", Workload), ("cluster", Cluster), ("layout", Layout),
        )
    )  # fmt: skip
    case = Case(
        architecture=architecture, workload=workload, cluster=cluster, framework=profile, layout=layout
    )
    return Observation(
        run=str(document.get("run", "")),
        case=case,
        steps=int(_number(measured, "steps", name)),
        step_s=_number(measured, "stepSeconds", name),
        scatter=_number(measured, "scatter", name),
        allocated_bytes=_number(measured, "allocatedBytes", name),
        start_s=_number(measured, "startSeconds", name, most=_LONGEST_S),
        checkpoint_s=_number(measured, "checkpointSeconds", name, most=_LONGEST_S),
    )


def _mapping(document: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    value = document.get(key)
    if not isinstance(value, Mapping):
        raise InputError(f"{name}: {key}", value=value, remedy="must be a mapping")
    return value


def _number(document: Mapping[str, Any], key: str, name: str, *, most: float = math.inf) -> float:
    value = document.get(key, 0)
    sound = not isinstance(value, bool) and isinstance(value, int | float)
    if not sound or not 0 <= value < math.inf or value > most:
        limit = "" if most == math.inf else f" up to {most:g}"
        remedy = f"must be a number{limit}, 0 if not measured"
        raise InputError(f"{name}: measured.{key}", value=value, remedy=remedy)
    return float(value)


def _document(noun: Any) -> dict[str, Any]:
    """A noun's fields as JSON values, without pure provenance (`source`, `aliases`)."""
    values = {}
    for field in fields(noun):
        value = getattr(noun, field.name)
        if is_dataclass(value):
            values[field.name] = _document(value)
        elif field.metadata.get("column", True):
            values[field.name] = value.value if isinstance(value, enum.Enum) else value
    return values


def _from_fields(kind: type[Any], document: Mapping[str, Any], name: str) -> Any:
    """A noun from its document; a value of the wrong type, or a missing one, is an error that names it."""
    hints = get_type_hints(kind)
    values = {}
    for key in (f.name for f in fields(kind) if f.name in document):
        hint, where = hints[key], f"{name}.{key}"
        if is_dataclass(hint) and isinstance(hint, type):
            values[key] = _from_fields(hint, _mapping(document, key, name), where)
        else:
            values[key] = _value(hint, document[key], where)
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(name, value=sorted(document), remedy=str(error)) from None


def _value(hint: Any, value: Any, name: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            raise InputError(name, value=value, remedy=f"must be one of {[m.value for m in hint]}") from None
    allowed = hint | int if hint is float or float in get_args(hint) else hint
    if not isinstance(value, allowed):
        raise InputError(name, value=value, remedy=f"must be {getattr(hint, '__name__', hint)}")
    return value
