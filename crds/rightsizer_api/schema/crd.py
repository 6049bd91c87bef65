"""The CustomResourceDefinition from the models: a structural schema without references or unions."""

import functools
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from rightsizer_api.plan import GROUP, KIND, LONGEST_NAME, VERSION, TrainingPlan

_PLURAL = "trainingplans"

_HEADER = "# Generated from the models in rightsizer_api by `make generate`. Do not edit.\n"

_NAME_RULES = (
    {
        "rule": f"self.metadata.name.size() <= {LONGEST_NAME}",
        "message": f"metadata.name must have at most {LONGEST_NAME} characters: its pods' names are longer",
    },
    {
        "rule": "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "message": "metadata.name must be lower-case letters, digits and dashes (a DNS-1123 label)",
    },
)

_COLUMNS = (
    ("GPUs", "integer", ".status.sizing.gpus", "GPUs that train", 0),
    ("Reserve", "integer", ".status.sizing.opening.reserveGPUs", "GPUs that it may grow to as measured", 0),
    ("Type", "string", ".status.sizing.gpuType", "GPU type", 1),
    ("Layout", "string", ".status.sizing.layoutText", "How the work is split", 0),
    ("ETA", "string", ".status.eta", "When it will finish", 0),
    ("Deadline", "string", ".status.deadline", "When it must be finished", 0),
    ("State", "string", '.status.conditions[?(@.type=="Ready")].reason', "What it is doing", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was created", 0),
)


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition as plain values."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{_PLURAL}.{GROUP}",
            "labels": {
                "app.kubernetes.io/name": "rightsizer",
                "app.kubernetes.io/part-of": "rightsizer",
            },
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": _PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["tp"],
                "categories": ["training"],
            },
            "versions": [_version()],
        },
    }


@functools.cache
def crd_yaml() -> str:
    """The CustomResourceDefinition as YAML, for `kubectl apply --server-side -f -`."""
    return _HEADER + yaml.dump(crd(), Dumper=_Plain, sort_keys=False, width=110)


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {
            "status": {},
            # `kubectl scale` fixes the size that the search would otherwise choose.
            "scale": {
                "specReplicasPath": ".spec.resources.gpus",
                "statusReplicasPath": ".status.sizing.gpus",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": meaning}
            | ({"priority": priority} if priority else {})  # as stored: another form is a conflict for others
            for name, kind, path, meaning, priority in _COLUMNS
        ],
    }


def _schema() -> dict[str, Any]:
    """The models' schema; of the metadata, which the API server owns, only the name is ours to bound."""
    schema = structural(TrainingPlan)
    for name in ("apiVersion", "kind"):
        described = schema["properties"][name]["description"]
        schema["properties"][name] = {"type": "string", "description": described}
    schema["properties"]["metadata"] = {"type": "object"}
    # until the operator answers: without it, kstatus takes a plan without a status for a ready one
    schema["properties"]["status"]["default"] = {"observedGeneration": -1}
    schema["required"] = ["spec"]
    schema["x-kubernetes-validations"] = list(_NAME_RULES)
    return schema


class _Plain(yaml.SafeDumper):
    """YAML without anchors: readers of a CRD expect each part in full."""

    def ignore_aliases(self, data: object) -> bool:
        """Never an alias."""
        return True


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
