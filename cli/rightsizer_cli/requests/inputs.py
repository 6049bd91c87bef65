"""One TrainingPlan from a manifest, flags, or flags over a manifest: the same models, the same errors."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rightsizer_api import API_VERSION, KIND, TrainingPlan, load, loads, sizing, validate, with_config
from rightsizer_api.short_names import SHORT_NAMES, overlaid
from rightsizer_cli.requests.dataset_tokens import counted
from rightsizer_cli.requests.files import read_stdin
from rightsizer_cli.requests.model_files import config_of
from rightsizer_cli.requests.shorthand import spelled_out
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.domain.workload import Method
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.types import Request
from rightsizer_engine.values import immutable
from rightsizer_launch.running.calibration import calibrated as with_calibration

_RIVALS = ("workload.tokens", "workload.dataset.examples", "workload.dataset.length")
"""Fields that a data set's file takes the place of."""
_BITS = "workload.quantisedBits"


@immutable
class _Given:
    """The flags' values by path under `spec`, the flags' names, a local model, the assumptions."""

    values: Mapping[str, Any]
    flags: Mapping[str, str]
    label: str = ""
    notes: tuple[str, ...] = ()


def read(file: Path | None, *groups: Any) -> tuple[TrainingPlan, Request]:
    """The plan of a manifest (`-` is stdin) with flags over it, or of flags alone; and its request."""
    if file is not None:
        plan = loads(read_stdin(field="FILE"), name="stdin") if str(file) == "-" else load(file)
        return read_over(plan, *groups)
    given = _given(groups)
    if not given.values:
        raise OptionError("FILE", value="", remedy="name a manifest, or give --model, --tokens and --gpu")
    with errors_named_after(given.flags):
        plan = _plan_of({}, given)
        return plan, _asked(plan, given.notes)


def read_over(plan: TrainingPlan, *groups: Any) -> tuple[TrainingPlan, Request]:
    """A plan with flags over it; and its request."""
    given = _given(groups)
    with errors_named_after({spec: flag for spec, flag in given.flags.items() if spec in given.values}):
        if given.values:
            beneath = plan.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"status"})
            plan = _plan_of(beneath, given)
        return plan, _asked(plan, given.notes)


def _given(groups: tuple[Any, ...]) -> _Given:
    """The flags that were given; a model on this machine is read from its config.json."""
    options = list(_options(groups))
    values = spelled_out({spec: value for spec, _, value in options if value not in (None, [])})
    flags = {spec: flag for spec, flag, _ in options}
    if any(spec == "nodes" and value for spec, _, value in options):
        flags["resources.gpus"] = "--nodes"
    notes = _with_dataset(values, flags)
    name = values.get("model.name")
    local = config_of(name) if isinstance(name, str) else None
    if not local:
        return _Given(values=values, flags=flags, notes=notes)
    del values["model.name"]
    paths = {"model.configPath": str(local.absolute())}
    flags |= dict.fromkeys(paths, "--model")
    return _Given(values=values | paths, flags=flags, label=str(name), notes=notes)


def _with_dataset(values: dict[str, Any], flags: dict[str, str]) -> tuple[str, ...]:
    """Replace a data set's file by its tokens; the assumptions."""
    path = values.pop("dataset", None)
    if path is None:
        return ()
    if rival := next((flags[spec] for spec in _RIVALS if spec in values), None):
        raise OptionError("--dataset", value=path, remedy=f"give --dataset or {rival}, not both")
    found, epochs = counted(Path(path)), values.pop("workload.dataset.epochs", 1.0)
    values["workload.tokens"] = f"{max(1.0, found.tokens * epochs):.0f}"
    flags["workload.tokens"] = "--dataset"
    return (found.rule if epochs == 1 else f"{found.rule}; {epochs:g} epochs",)


def _asked(plan: TrainingPlan, notes: tuple[str, ...]) -> Request:
    """The plan's request. Some of an exact number of GPUs may idle: nothing is started."""
    request = sizing.resolve(plan).request()
    return dataclasses.replace(request, may_idle=True, notes=(*request.notes, *notes))


def calibrated(request: Request, *, ignore: bool) -> Request:
    """The request with the calibration from the user's own runs, unless `ignore`."""
    return request if ignore else with_calibration(request)


def document_of(beneath: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with values set at dotted paths under `spec`, without the fields that they replace."""
    head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "plan"}}
    return head | dict(beneath) | {"spec": overlaid(beneath.get("spec", {}), given)}


def _plan_of(beneath: Mapping[str, Any], given: _Given) -> TrainingPlan:
    """The plan of values over a manifest. A config from this machine is called as the user called it."""
    document: Any = with_config(document_of(beneath, given.values), Path())
    if given.label:
        document["spec"]["model"]["config"]["_name_or_path"] = given.label
    plan = validate(document)
    bits = given.values.get(_BITS)
    if bits is not None and plan.spec.workload.method is not Method.QLORA:  # a manifest may hold the default
        raise InputError(_BITS, value=bits, remedy="only --method qlora quantises weights")
    return plan


def _options(groups: tuple[Any, ...]) -> Iterator[tuple[str, str, Any]]:
    """(path under spec, flag, value) of every option that sets a plan field."""
    for group in groups:
        for field in dataclasses.fields(group):
            value, flag = getattr(group, field.name), f"--{field.name.replace('_', '-')}"
            yield SHORT_NAMES.get(field.name, field.name), flag, _plain(value)


def _plain(value: Any) -> Any:
    """A path as text; a list with its comma-separated items apart."""
    if isinstance(value, list):
        return [item.strip() for text in value for item in text.split(",")]
    return str(value) if isinstance(value, Path) else value


@contextlib.contextmanager
def errors_named_after(flags: Mapping[str, str]) -> Iterator[None]:
    """Name the flag in an error, not the field that it set: the user typed the flag."""
    try:
        yield
    except InputError as error:
        flag = flags.get(error.field.removeprefix("spec.").split("[")[0])
        if flag is None:
            raise
        raise OptionError(flag, value=error.value, remedy=error.remedy) from None
