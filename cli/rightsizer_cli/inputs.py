"""From a manifest, flags, or flags over a manifest to one TrainingPlan: the same models, the same errors."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from rightsizer.errors import InputError
from rightsizer.outcome import Request
from rightsizer_api import API_VERSION, KIND, TrainingPlan, load, loads, sizing
from rightsizer_cli.mistakes import OptionError
from rightsizer_cli.options import Spec
from rightsizer_launch.calibration import load as load_calibration

__all__ = ["calibrated", "document_of", "read"]

RIVALS = (
    {"model.name", "model.config", "model.configPath", "model.dimensions"},
    {"deadline.finishWithin", "deadline.finishBy"},
    {"workload.tokens", "workload.dataset"},
    {"workload.globalBatchTokens", "workload.globalBatchSequences"},
)
"""Fields of which a plan has one: a flag that sets one takes the others out of the manifest beneath it."""


def read(file: Path | None, *groups: Any) -> tuple[TrainingPlan, Request]:
    """The plan of a manifest (`-` is stdin) with flags over it, or of flags alone; and what it asks."""
    options = list(_options(groups))
    given = {spec: value for spec, _, value in options if value not in (None, [])}
    if file is None and not given:
        raise OptionError("FILE", value="", remedy="name a manifest, or give --model, --tokens and --gpu")
    if file is None:
        with _errors_named_after({spec: flag for spec, flag, _ in options}):
            plan = load(json.dumps(document_of({}, given)))
            return plan, sizing.request(plan)
    plan = loads(sys.stdin.read(), name="stdin") if str(file) == "-" else load(file)
    with _errors_named_after({spec: flag for spec, flag, _ in options if spec in given}):
        if given:
            beneath = plan.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"status"})
            plan = load(json.dumps(document_of(beneath, given)))
        return plan, sizing.request(plan)


def calibrated(request: Request, *, ignore: bool) -> Request:
    """The request with what the user's own runs measured, if anything, unless that is to be ignored."""
    learnt = None if ignore else load_calibration()
    return replace(request, calibration=learnt) if learnt else request


def document_of(beneath: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with values put at dotted paths under `spec`; fields that rival a given one are dropped."""
    spec = json.loads(json.dumps(beneath.get("spec", {})))
    rivals = {r for path in given for group in RIVALS if path in group for r in group} - set(given)
    for path in rivals:
        *parents, leaf = path.split(".")
        _node(spec, parents).pop(leaf, None)
    for path, value in given.items():
        *parents, leaf = path.split(".")
        _node(spec, parents)[leaf] = value
    spec = {name: part for name, part in spec.items() if part != {}}
    head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "plan"}}
    return head | dict(beneath) | {"spec": spec}


def _node(spec: dict[str, Any], parents: list[str]) -> dict[str, Any]:
    node = spec
    for parent in parents:
        node = node.setdefault(parent, {})
    return node


def _options(groups: tuple[Any, ...]) -> Iterator[tuple[str, str, Any]]:
    """(path under spec, flag, value) of every option that sets a plan field."""
    for group in groups:
        for name, hint in get_type_hints(type(group), include_extras=True).items():
            for spec in (extra for extra in get_args(hint)[1:] if isinstance(extra, Spec)):
                value = getattr(group, name)
                yield (
                    str(spec),
                    f"--{name.replace('_', '-')}",
                    str(value) if isinstance(value, Path) else value,
                )


@contextlib.contextmanager
def _errors_named_after(flags: Mapping[str, str]) -> Iterator[None]:
    """Name the flag in an error, not the field that it set: the user typed the flag."""
    try:
        yield
    except InputError as error:
        flag = flags.get(error.field.removeprefix("spec.").split("[")[0])
        if flag is None:
            raise
        raise OptionError(flag, value=error.value, remedy=error.remedy) from None
