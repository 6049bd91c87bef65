"""The base of every model of the API: naming, strictness, and rules that two sides check."""

import re
from collections.abc import Callable
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable

_ACRONYMS = {
    "usd": "USD",
    "gpu": "GPU",
    "gpus": "GPUs",
    "gib": "GiB",
    "gbps": "GBps",
    "kwh": "KWh",
}


def camel(name: str) -> str:
    """The API's spelling of a Python name: max_gpus -> maxGPUs, gpu_types -> gpuTypes."""
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


@immutable
class Rule:
    """A constraint on one model: `cel` for the API server, `holds` for everyone else; they say the same.

    `field` is the path, below the model, of the value to show.
    """

    field: str
    remedy: str
    cel: str
    holds: Callable[[Any], bool]


@immutable
class Transition:
    """A constraint for the API server alone: what may not change, or cannot work on a cluster."""

    remedy: str
    cel: str


def fixed(remedy: str) -> dict[str, Any]:
    """The schema extension of a field that, once set, may not change; `remedy` explains the alternative."""
    return {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": remedy}]}


class Model(BaseModel):
    """A frozen, strict model with camelCase names on the wire; a field it does not know is an error."""

    model_config = ConfigDict(
        alias_generator=camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=False,
        validate_default=False,
        defer_build=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    transitions: ClassVar[tuple[Transition, ...]] = ()
    """What only the API server refuses: changes, and what cannot work on a cluster."""

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        for rule in self.rules:
            if not rule.holds(self):
                raise InputError(rule.field, value=_shown(self, rule.field), remedy=rule.remedy)
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        validations = [
            {"rule": rule.cel, "message": rule.remedy}
            | ({"fieldPath": f".{rule.field}"} if rule.field else {})
            for rule in cls.rules
        ]
        validations += [{"rule": rule.cel, "message": rule.remedy} for rule in cls.transitions]
        if validations:
            schema["x-kubernetes-validations"] = validations
        return schema


def _shown(model: BaseModel, path: str) -> object:
    """The value at a dotted wire path below a model, or None; numbers in brackets are indexes."""
    value: object = model
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, BaseModel):
            by_alias = {f.alias or name: name for name, f in type(value).model_fields.items()}
            value = getattr(value, by_alias.get(step, step), None)
        elif isinstance(value, tuple) and step.isdigit():
            value = value[int(step)]
    return None if isinstance(value, BaseModel | dict) else value
