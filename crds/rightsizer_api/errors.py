"""Every validation failure becomes one clear error: the dotted path, the value, the remedy."""

import difflib
import enum
import functools
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rightsizer_engine.errors import InputError

_LONGEST = 60
_ROOT_CAUSES = ("extra_forbidden", "missing")  # a misspelt field also leaves its right name missing


class PlanError(InputError):
    """A wrong field of a plan. The message is the first error; `others` are the rest, for those who ask."""

    def __init__(self, field: str, *, value: object, remedy: str, others: Sequence[InputError] = ()) -> None:
        super().__init__(field, value=value, remedy=remedy)
        self.others = tuple(others)

    def __str__(self) -> str:
        if self.value is None or self.value == "":
            return f"{self.field}: {self.remedy}"
        return super().__str__()


def plan_error(error: ValidationError, model: type[BaseModel]) -> PlanError:
    """The one error to show for what pydantic found in a document of `model`."""
    details = sorted(error.errors(include_url=False), key=_rank)
    first, *rest = [_translated(detail, model) for detail in details]
    return PlanError(first.field, value=first.value, remedy=first.remedy, others=rest)


def wire_fields(model: type[BaseModel]) -> Mapping[str, Any]:
    """A model's fields by the names they have in documents."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _rank(detail: ErrorDetails) -> int:
    kind = detail["type"]
    return _ROOT_CAUSES.index(kind) if kind in _ROOT_CAUSES else len(_ROOT_CAUSES)


def _translated(detail: ErrorDetails, root: type[BaseModel]) -> InputError:
    """One pydantic error in our words."""
    cause = detail.get("ctx", {}).get("error")
    path = _dotted(detail["loc"])
    if isinstance(cause, InputError):
        return PlanError(_joined(path, cause.field), value=cause.value, remedy=cause.remedy)
    if detail["type"] == "extra_forbidden":
        return PlanError(path, value=None, remedy=f"unknown field; {_suggestion(detail['loc'], root)}")
    if detail["type"] == "missing":
        return PlanError(path, value=None, remedy=f"is required{_example(detail['loc'], root)}")
    remedy = _plain_words(detail)
    if "did you mean" not in remedy:
        remedy += _example(detail["loc"], root)
    return PlanError(path or "document", value=_short(detail["input"]), remedy=remedy)


def _plain_words(detail: ErrorDetails) -> str:
    """The expected value, for the kinds of errors that our models can have."""
    context, kind, value = detail.get("ctx", {}), detail["type"], detail["input"]
    if kind in {"enum", "literal_error"}:
        wanted = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        near = difflib.get_close_matches(str(value), wanted.split(", "), n=1)
        return f"must be one of {wanted}" + (f"; did you mean {near[0]}?" if near else "")
    if kind == "string_type" and isinstance(value, int | float):
        return "must be text; put it in quotes"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    if kind in {"dict_type", "model_type", "model_attributes_type"}:
        return "must be a mapping of fields"
    if kind in {"tuple_type", "list_type"}:
        return "must be a list"
    text = detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return f"must be {text}" if detail["msg"].startswith("Input should be ") else text[:1].lower() + text[1:]


def _suggestion(loc: tuple[int | str, ...], root: type[BaseModel]) -> str:
    """The nearest known field: of the same object, else anywhere in the document, else the list."""
    name, parent = str(loc[-1]), _model_at(loc[:-1], root)
    known = list(wire_fields(parent)) if parent else []
    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower().replace("_", ""), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {folded[near[0]]}?"
    elsewhere = [path for path in _paths(root) if path.rsplit(".", 1)[-1] == name]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    return f"known here: {', '.join(known)}"


def _example(loc: tuple[int | str, ...], root: type[BaseModel]) -> str:
    parent = _model_at(loc[:-1], root)
    field = wire_fields(parent).get(str(loc[-1])) if parent else None
    examples = getattr(field, "examples", None)
    if not examples or isinstance(examples[0], dict):
        return ""
    example = examples[0]
    shown = f"[{', '.join(map(str, example))}]" if isinstance(example, list) else str(example)
    return f", such as {shown}"


def _model_at(loc: tuple[int | str, ...], root: type[BaseModel]) -> type[BaseModel] | None:
    """The model that a location lies in, walking fields by their wire names."""
    model: type[BaseModel] | None = root
    for step in loc:
        if isinstance(step, int):
            continue
        field = wire_fields(model).get(step) if model else None
        model = next(_models(field.annotation), None) if field else None
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside an annotation (optional, in a tuple, annotated)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


@functools.cache
def _paths(model: type[BaseModel], prefix: str = "") -> tuple[str, ...]:
    """Every field of a spec as a dotted path, shallow ones first; users do not write the status."""
    found: list[str] = []
    deeper: list[str] = []
    for name, field in wire_fields(model).items():
        if name == "status":
            continue
        found.append(f"{prefix}{name}")
        for inner in _models(field.annotation):
            deeper += _paths(inner, f"{prefix}{name}.")
    return (*found, *deeper)


def _dotted(loc: Sequence[int | str]) -> str:
    text = ""
    for step in loc:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _joined(path: str, field: str) -> str:
    return f"{path}.{field}" if path and field and not field.startswith("[") else path + field


def _short(value: object) -> object:
    """The value for a message, shortened."""
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return "a very long number"  # Python refuses to print one of 5,000 digits
    if isinstance(value, enum.Enum | int | float) or value is None:
        return value
    text = value if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
