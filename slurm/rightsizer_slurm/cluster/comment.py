"""The syntax of job comments: `rightsizer: model=... tokens=100B deadline=72h`, or `rightsizer: plan=FILE`.

    comment = "rightsizer:" { word } ;                   (at most 1,024 characters, words separated by blanks)
    word    = key "=" value ;
    key     = short name | path ;                        (deadline, max-gpus; workload.sequenceLength)
    value   = bare | '"' { quoted } '"' | "'" { quoted } "'" ;
    bare    = { letter | digit | one of . _ = : , / + @ % ~ - } ;
    quoted  = bare character | " " ;

A short name is a flag of `rightsizer plan` without its dashes; a path is a field of a TrainingPlan's `spec`.
Values have the syntax of flags and manifests, and the same models check them.
"""

import difflib
import enum
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from pydantic import BaseModel

from rightsizer_api import API_VERSION, KIND, Spec, TrainingPlan, validate
from rightsizer_api.errors import wire_fields
from rightsizer_api.short_names import SHORT_NAMES, overlaid
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable

PREFIX = "rightsizer:"
LONGEST = 1024
"""Characters of a comment; the Lua plugin has the same limit."""

_ADDED = re.compile(r" (?:ticket=([0-9a-f]+)|RIGHTSIZER_[A-Z_]+=|refused: ).*", re.DOTALL)
"""What rightsizer adds behind the comment of a held job: its ticket, then its variables or a refusal."""
_ALIASES = {"min": "min_gpus", "max": "max_gpus"}
_PLAN, _RUN = "plan", "run"
_WORD = re.compile(r"""([A-Za-z][A-Za-z0-9_.-]*)=("[^"']*"|'[^"']*'|[^\s"']*)(?=\s|$)""")
_INVALID = re.compile(r"""[^A-Za-z0-9 ._=:,/+@%~"'-]""")
_SUBJECT = frozenset({"model", "workload", "launch", "layout"})
_LENGTH = ("workload.tokens", "workload.dataset.")
_FILES = frozenset({"model.configPath"})
"""Paths that name a file: the daemon would read it with its own rights, not with the user's."""


@immutable
class Comment:
    """A parsed comment: values by path under `spec`, the user's key for each path, the plan file.

    `run` is set by `rightsizer sbatch`: that job was sized when it was submitted.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    run: str = ""


def is_ours(comment: str) -> bool:
    """Whether a job's comment is for rightsizer."""
    return comment.lstrip().startswith(PREFIX)


def written(comment: str) -> str:
    """The comment as its user wrote it."""
    return _ADDED.sub("", comment)


def hold_of(comment: str) -> str:
    """The ticket under which the job is held; empty if none."""
    found = _ADDED.search(comment) if is_ours(comment) else None
    return (found[1] or "") if found else ""


def with_variables(comment: str, variables: Mapping[str, str]) -> str:
    """The user's comment and the variables of the job, which its script reads from it."""
    return " ".join((written(comment), *(f"{name}={value}" for name, value in variables.items())))


def refused(comment: str, reason: str) -> str:
    """The user's comment and why the job was ended."""
    return f"{written(comment)} refused: {reason}"


def keys() -> tuple[str, ...]:
    """Every short key as users write it."""
    names = [name for name in (*SHORT_NAMES, *_ALIASES) if SHORT_NAMES.get(name) not in _FILES]
    return (_PLAN, *(_dashed(name) for name in names))


def parse(comment: str) -> Comment:
    """Parse a comment. InputError names the wrong word and the nearest valid one."""
    given: dict[str, Any] = {}
    written: dict[str, str] = {}
    special = {_PLAN: "", _RUN: ""}
    for key, value in _words(comment):
        if key in special:
            path = key
            special[key] = value
        else:
            path = _path(key, value)
            given[path] = _converted(path, key, value)
        if path in written:
            raise InputError(key, value=value, remedy=f"is set twice ({written[path]}, {key}); keep one")
        written[path] = key
    if not given and not special[_PLAN]:
        raise InputError("comment", value=comment.strip(), remedy="is empty; write model=... tokens=...")
    return Comment(given=given, keys=written, plan=special[_PLAN], run=special[_RUN])


def subject(comment: Comment) -> str:
    """The model and method, without amount and deadline: jobs of one subject share the engine's caches."""
    parts = {p: v for p, v in comment.given.items() if p.split(".")[0] in _SUBJECT}
    return " ".join(f"{p}={v}" for p, v in sorted(parts.items()) if not p.startswith(_LENGTH))


def plan_of(comment: Comment, *, beneath: TrainingPlan | None = None, name: str = "job") -> TrainingPlan:
    """The plan of a comment. Its words override those of its plan file, if it names one."""
    spec: Mapping[str, Any] = {}
    head: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
    if beneath is not None:
        document = beneath.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"status"})
        spec, head["metadata"] = document["spec"], document["metadata"]
    else:
        _complete(comment)
    try:
        return validate(head | {"spec": overlaid(spec, comment.given)})
    except InputError as error:
        raise with_user_key(error, comment) from None


def _words(comment: str) -> Iterator[tuple[str, str]]:
    text = comment.strip().removeprefix(PREFIX)
    if len(comment) > LONGEST:
        remedy = f"has more than {LONGEST} characters; put the plan in a file and write plan=FILE"
        raise InputError("comment", value=f"{len(comment)} characters", remedy=remedy)
    invalid = _INVALID.search(text.replace("\t", " "))
    if invalid:
        remedy = "is not allowed in a comment; use letters, digits, blanks, quotes and . _ = : , / + @ % ~ -"
        raise InputError("comment", value=invalid.group(), remedy=remedy)
    at = 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        match = _WORD.match(text, at)
        if match is None:
            raise InputError("comment", value=text[at:].split()[0][:60], remedy="is not key=value")
        yield match[1], match[2].strip("\"'")
        at = match.end()


def _path(key: str, value: str) -> str:
    """The path under spec that a key means."""
    name = key.lower().replace("-", "_")
    short = SHORT_NAMES.get(_ALIASES.get(name, name))
    path = short or (key.removeprefix("spec.") if "." in key else "")
    if path in _FILES:
        raise InputError(key, value=value, remedy="names a file; put the plan in a file and write plan=FILE")
    if short or _field_at(path) is not None:
        return path
    folded = {k.replace("-", ""): k for k in keys()}
    near = difflib.get_close_matches(name.replace("_", ""), folded, n=1, cutoff=0.5)
    known = f"did you mean {folded[near[0]]}?" if near else f"known: {', '.join(keys())}"
    raise InputError(key, value=value, remedy=f"unknown key; {known}")


@functools.cache
def _field_at(path: str) -> Any:
    """The annotation of the field of Spec at a dotted path of wire names; None if there is none."""
    model: Any = Spec
    annotation: Any = None
    for step in path.split("."):
        fields = wire_fields(model) if model is not None else {}
        if step not in fields:
            return None
        annotation = fields[step].annotation
        models = [kind for kind in _kinds(annotation) if issubclass(kind, BaseModel)]
        model = models[0] if models else None
    return annotation


def _kinds(annotation: Any) -> tuple[type, ...]:
    """The plain types in an annotation: int | None -> (int, NoneType)."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return tuple(kind for part in typing.get_args(annotation) for kind in _kinds(part))
    origin = typing.get_origin(annotation) or annotation
    return (origin,) if isinstance(origin, type) else ()


def _converted(path: str, key: str, value: str) -> Any:
    """A value in the type of its field; what does not convert stays text: the model says what is wrong."""
    kinds = _kinds(_field_at(path))
    if any(issubclass(kind, BaseModel | dict) for kind in kinds):
        raise InputError(key, value=value, remedy="is a group of fields; set one of them, or write plan=FILE")
    if tuple in kinds:
        return [part for part in value.split(",") if part]
    if bool in kinds and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if int in kinds and str not in kinds and re.fullmatch(r"[+-]?[0-9]{1,15}", value):
        return int(value)
    if float in kinds and str not in kinds and re.fullmatch(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?", value):
        return float(value)
    names = [str(member.value) for kind in kinds if issubclass(kind, enum.Enum) for member in kind]
    return next((name for name in names if name.lower() == value.lower()), value)


def _complete(comment: Comment) -> None:
    """A comment without a plan file must name a model and an amount of tokens."""
    for group, key, example in (
        ("model.", "model", "model=meta-llama/Llama-3.1-8B"),
        (("workload.tokens", "workload.dataset."), "tokens", "tokens=100B"),
    ):
        if not any(path.startswith(group) for path in comment.given):
            raise InputError(key, value=None, remedy=f"is missing; write for example {example}")


def with_user_key(error: InputError, comment: Comment) -> InputError:
    """The error with the user's key in place of the field's path."""
    path = error.field.removeprefix("spec.").split("[")[0]
    named = comment.keys.get(path)
    if named is None:
        return error
    return InputError(named, value=error.value, remedy=error.remedy)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
