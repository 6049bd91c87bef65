"""Pydantic's JSON schema as a Kubernetes structural schema: no references, no unions."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

__all__ = ["structural"]

Node = dict[str, Any]

_COPIED = (
    "type",
    "description",
    "format",
    "enum",
    "default",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)
"""Keywords copied unchanged. All others are translated below, or a structural schema forbids them."""


def structural(model: type[BaseModel]) -> Node:
    """A model's schema with its wire names, as apiextensions.k8s.io/v1 requires."""
    root = model.model_json_schema(by_alias=True, mode="validation")
    return _node(root, root.get("$defs", {}))


def _node(raw: Mapping[str, Any], definitions: Mapping[str, Any]) -> Node:
    """One node of the schema."""
    raw = _resolved(raw, definitions)
    if "const" in raw:
        raw = {**raw, "enum": [raw["const"]]}
    node: Node = {key: raw[key] for key in _COPIED if key in raw}
    node |= {key: value for key, value in raw.items() if key.startswith("x-kubernetes-")}
    if node.get("default") is None or isinstance(node["default"], dict | list):
        node.pop("default", None)
    if "properties" in raw:
        node["properties"] = {k: _node(v, definitions) for k, v in raw["properties"].items()}
    elif isinstance(raw.get("additionalProperties"), Mapping):
        node["additionalProperties"] = _node(raw["additionalProperties"], definitions)
    if "items" in raw:
        node["items"] = _node(raw["items"], definitions)
    return node


def _resolved(raw: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve references and "or null". The field's own keywords override those of its type."""
    while "$ref" in raw or "anyOf" in raw:
        if "$ref" in raw:
            inner = definitions[raw["$ref"].rsplit("/", 1)[-1]]
            raw = {**inner, **{k: v for k, v in raw.items() if k != "$ref"}}
        else:
            (inner,) = (option for option in raw["anyOf"] if option.get("type") != "null")
            raw = {**inner, **{k: v for k, v in raw.items() if k != "anyOf"}}
    return raw
