"""The form of the page: the fields of the plan's options, and what a query string says in them."""

import dataclasses
import shlex
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.values import immutable

Query = Mapping[str, str]
"""Names of fields, as in the address, and what was typed."""

EXAMPLE: Query = {"model": "meta-llama/Llama-3.1-8B", "tokens": "100B", "deadline": "14d", "gpu": "H100"}
"""The query of a page without one."""

_LONGEST = 300
"""Characters of a field: more than any name has."""
_FIRST = ("model", "method", "tokens", "deadline", "gpu", "max_gpus", "budget")
_HIDDEN = ("config",)
_LISTS = {"model": "models", "gpu": "gpus", "node_shape": "nodes", "framework": "frameworks"}
_YES_NO = {"yes": True, "no": False}


@immutable
class Field:
    """One field: its name in the address, its label and hint, its choices or its list of suggestions."""

    name: str
    label: str
    hint: str
    numeric: bool = False
    choices: tuple[str, ...] = ()
    suggestions: str = ""


@immutable
class FieldGroup:
    """Fields that belong together."""

    title: str
    fields: tuple[Field, ...]


@immutable
class _Option:
    """A field of the command's options, with the type of its value."""

    field: Field
    kind: type
    group: type


def stated(query: Query) -> dict[str, str]:
    """The fields that say something, in the form's order. Raises OptionError for an unknown or long one."""
    for name, text in query.items():
        if name not in _OPTIONS:
            raise OptionError(name, value=text[:40], remedy="is no field of this page")
        if len(text) > _LONGEST:
            raise OptionError(_flag(name), value=text[:40], remedy=f"has more than {_LONGEST} characters")
    return {name: query[name].strip() for name in _OPTIONS if query.get(name, "").strip()}


def options(query: Query) -> tuple[JobFlags, GoalFlags, HardwareFlags, FixedLayoutFlags]:
    """A query as the options of `rightsizer plan`."""
    values = {name: _value(_OPTIONS[name], text) for name, text in stated(query).items()}

    def of(group: type) -> Any:
        return group(**{name: value for name, value in values.items() if _OPTIONS[name].group is group})

    return of(JobFlags), of(GoalFlags), of(HardwareFlags), of(FixedLayoutFlags)


def command(query: Query) -> str:
    """The command line of the same request."""
    parts = ["rightsizer", "plan"]
    for name, text in stated(query).items():
        if _OPTIONS[name].kind is bool:
            parts.append(_flag(name) if _value(_OPTIONS[name], text) else f"--no-{name}")
        else:
            parts += [_flag(name), text]
    return shlex.join(parts)


def address(query: Query) -> str:
    """A query as the end of an address."""
    return f"?{urlencode(stated(query))}"


def query_of_flag(query: Query, flag: str) -> dict[str, str] | None:
    """The query after a lever's flag ("--gpu GH200-96GB"); None if the flag is no field."""
    changed = dict(query)
    words = shlex.split(flag)
    if not words or len(words) % 2:
        return None
    for option, value in zip(words[::2], words[1::2], strict=True):
        name = option.removeprefix("--").replace("-", "_")
        if name not in _OPTIONS:
            return None
        changed[name] = value
    return changed


def _value(option: _Option, text: str) -> Any:
    """The typed text, in the option's type."""
    if option.kind is list:
        return [text]
    if option.kind is bool:
        if text not in _YES_NO:
            raise OptionError(_flag(option.field.name), value=text, remedy="must be yes or no")
        return _YES_NO[text]
    try:
        return option.kind(text)
    except ValueError:
        what = "a whole number" if option.kind is int else "a number"
        raise OptionError(_flag(option.field.name), value=text, remedy=f"must be {what}") from None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _declared() -> Iterator[_Option]:
    """Every option of `rightsizer plan` that a page may set."""
    for group in (JobFlags, GoalFlags, HardwareFlags, FixedLayoutFlags):
        hints = typing.get_type_hints(group, include_extras=True)
        for declared in dataclasses.fields(group):
            if declared.name in _HIDDEN:
                continue
            annotation, option = typing.get_args(hints[declared.name])
            kind = _kind(annotation)
            field = Field(
                name=declared.name,
                label=_label(declared.name),
                hint=option.help.replace("`", ""),
                numeric=kind in (int, float),
                choices=_choices(declared.name, kind, option.complete),
                suggestions=_LISTS.get(declared.name, ""),
            )
            yield _Option(field=field, kind=kind, group=group)


def _kind(annotation: Any) -> type:
    """The type of an optional value: int of `int | None`, list of `list[str] | None`."""
    kind: Any = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
    bare: type = typing.get_origin(kind) or kind
    return bare


def _label(name: str) -> str:
    words = name.replace("_", " ").replace("gpus", "GPUs").replace("gpu", "GPU").replace("gbps", "GB/s")
    return words.upper() if len(words) <= 2 or words == "vpp" else words[0].upper() + words[1:]


def _choices(name: str, kind: type, complete: Any) -> tuple[str, ...]:
    if kind is bool:
        return tuple(_YES_NO)
    return tuple(complete("")) if complete and name not in _LISTS else ()


_OPTIONS = {option.field.name: option for option in _declared()}


def _group(title: str, group: type) -> FieldGroup:
    fields = (o.field for o in _OPTIONS.values() if o.group is group and o.field.name not in _FIRST)
    return FieldGroup(title=title, fields=tuple(fields))


GROUPS = (
    FieldGroup(title="", fields=tuple(_OPTIONS[name].field for name in _FIRST)),
    _group("Training", JobFlags),
    _group("Goal", GoalFlags),
    _group("Hardware", HardwareFlags),
    _group("Layout", FixedLayoutFlags),
)
"""The form: what everyone states first, then the rest by topic."""
