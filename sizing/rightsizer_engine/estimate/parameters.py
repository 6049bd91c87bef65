"""Fitted constants as data: each with its prior, unit, meaning, and what it was fitted on.

Two files: `data/curves.json` holds what hardware does (fitted to microbenchmarks), `data/step_time.json`
what frameworks add (fitted to published runs). No parameter is keyed to a model, a paper or a run.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightsizer_engine import packaged
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable


@immutable
class Parameter:
    """One constant. `sigma_ln` is the width of its prior in ln(value); 0: fixed, not fitted."""

    name: str
    value: float
    prior: float
    sigma_ln: float
    unit: str
    meaning: str
    source: str = ""
    fitted_on: str = ""
    date: str = ""
    residual: float | None = None


class Parameters:
    """Named constants: `parameters.name` is the value; `parameters.entry(name)` all that is known of it."""

    __slots__ = ("_entries", "_values")

    def __init__(self, entries: Iterable[Parameter], values: Mapping[str, float] | None = None) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._values = {name: entry.value for name, entry in self._entries.items()} | dict(values or {})

    def __getattr__(self, name: str) -> float:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def entry(self, name: str) -> Parameter:
        """Prior, unit, meaning and provenance of one constant."""
        return self._entries[name]

    def replace(self, **values: float) -> "Parameters":
        """A copy with some values exchanged; the names must exist."""
        unknown = sorted(set(values) - set(self._entries))
        if unknown:
            raise InputError("parameters", value=unknown[0], remedy="no parameter has this name")
        return Parameters(self._entries.values(), self._values | values)

    def keyed(self, stem: str, keys: Iterable[str]) -> NDArray[Any]:
        """The values `stem_<key>` in the order of `keys`, as a table to index by code."""
        return np.asarray([self._values[f"{stem}_{key}"] for key in keys])

    def __or__(self, other: "Parameters") -> "Parameters":
        return Parameters([*self._entries.values(), *other._entries.values()], self._values | other._values)


def parse(text: str) -> Parameters:
    """The parameters in one JSON document: {"parameters": [{"name": ..., "value": ...}, ...]}."""
    document = json.loads(text)
    common = {key: document[key] for key in ("fitted_on", "date", "residual") if key in document}
    return Parameters(Parameter(**(common | entry)) for entry in document["parameters"])


def _load(name: str) -> Parameters:
    return parse(packaged.text(name))


@functools.cache
def load_curves() -> Parameters:
    """The achieved rates of hardware: matmul, attention, memory and link curves."""
    return _load("curves.json")


@functools.cache
def load_step_time() -> Parameters:
    """The hardware's curves together with the frameworks' terms: all that a step time needs."""
    return load_curves() | _load("step_time.json")


@functools.cache
def load_memory() -> Parameters:
    """The terms of the memory estimate."""
    return _load("memory.json")


@functools.cache
def load_calibration() -> Parameters:
    """The shares of a run's residual that other runs have in common, and the noise of one measured run."""
    return _load("calibration.json")


@functools.cache
def load_resize() -> Parameters:
    """The thresholds of the resize policy, each with its source or called a guess."""
    return _load("resize.json")


SHARES = ("gpu", "framework", "stack", "family", "model", "configuration")
"""Shares of the variance by cause; the rest to 1 belongs to one run: settings that no field states."""


def share_of_one_run(p: Parameters | None = None) -> float:
    """The share of the variance that a run has alone, also beside its configuration on other ranks."""
    p = p or load_calibration()
    return 1.0 - float(sum(getattr(p, f"step_share_{name}") for name in SHARES))
