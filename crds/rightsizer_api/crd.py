"""The CustomResourceDefinition, from the models."""

import functools
from typing import Any

import yaml

from rightsizer_api.plan import GROUP, KIND, LONGEST_NAME, VERSION, TrainingPlan
from rightsizer_api.schema import structural

__all__ = ["crd", "crd_yaml"]

PLURAL = "trainingplans"

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
            "name": f"{PLURAL}.{GROUP}",
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
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["tp"],
                "categories": ["training"],
            },
            "versions": [_version()],
        },
    }


@functools.cache
def crd_yaml() -> str:
    """The CustomResourceDefinition as YAML, ready for `kubectl apply -f -`."""
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
            {"name": name, "type": kind, "jsonPath": path, "description": meaning, "priority": priority}
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
    schema["required"] = ["spec"]
    schema["x-kubernetes-validations"] = list(_NAME_RULES)
    return schema


class _Plain(yaml.SafeDumper):
    """YAML without anchors: readers of a CRD expect each part in full."""

    def ignore_aliases(self, data: object) -> bool:
        """Never an alias."""
        return True
