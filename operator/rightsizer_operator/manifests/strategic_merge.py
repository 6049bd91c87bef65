"""A strategic merge of the user's pod template into the operator's. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rightsizer_api.spec.launch import EnvVar
from rightsizer_engine.errors import InputError
from rightsizer_operator.values.names import CONTAINER, STORE
from rightsizer_operator.values.vendors import is_gpu

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "claims": "name",
}
"""Lists that are merged by a key of their items, as Kubernetes does; other user lists replace ours."""
_APPENDED = ("tolerations",)
_RESERVED = ("restartPolicy", "hostname", "subdomain", "terminationGracePeriodSeconds")
_FIELD = "spec.launch.podTemplate"
_REMEDY = "is set by rightsizer; remove it"


def merged_template(base: Mapping[str, Any], template: Mapping[str, Any] | None) -> dict[str, Any]:
    """The workers' pod template with the user's merged in. InputError for fields that rightsizer sets.

    The container `store` of the user's template is the rendezvous pod's.
    """
    if not template:
        return dict(base)
    _check(template)
    spec = dict(template.get("spec") or {})
    spec["containers"] = [each for each in spec.get("containers", ()) if each.get("name") != STORE]
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    result: dict[str, Any] = merge({"metadata": kept, "spec": spec}, {"metadata": base.get("metadata", {})})
    return dict(merge({"spec": base["spec"]}, result))


def merge(base: Any, over: Any, *, name: str = "") -> Any:
    """Merge `over` into `base`: mappings by key, lists by their merge key; other values are replaced."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        merged = dict(base)
        for key, value in over.items():
            merged[key] = merge(base[key], value, name=key) if key in base else value
        return merged
    if isinstance(base, list) and isinstance(over, list):
        if name in _APPENDED:
            return [*base, *(item for item in over if item not in base)]
        if name in _KEYS:
            return _by_key(base, over, _KEYS[name])
    return over


def _by_key(base: Sequence[Mapping[str, Any]], over: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """The items of `base` in order, then the other items of `over`."""
    by_key = {item.get(key): item for item in over}
    merged = [merge(item, by_key.pop(item.get(key))) if item.get(key) in by_key else item for item in base]
    return [*merged, *by_key.values()]


def _check(template: Mapping[str, Any]) -> None:
    """Reject fields that would break the launch. The API server validates the rest."""
    spec = template.get("spec") or {}
    for name in _RESERVED:
        if name in spec and not (name == "restartPolicy" and spec[name] == "Never"):
            raise InputError(f"{_FIELD}.spec.{name}", value=spec[name], remedy=_REMEDY)
    for index, container in enumerate(spec.get("containers", ())):
        if container.get("name") in (CONTAINER, STORE):
            _check_ours(container, f"{_FIELD}.spec.containers[{index}]")
        for position, variable in enumerate(container.get("env", ())):
            _check_variable(variable, f"{_FIELD}.spec.containers[{index}].env[{position}]")


def _check_ours(container: Mapping[str, Any], where: str) -> None:
    for name in ("command", "args", "terminationMessagePath", "terminationMessagePolicy"):
        if name in container:
            raise InputError(f"{where}.{name}", value=container[name], remedy=_REMEDY)
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        for name in filter(is_gpu, resources.get(kind) or {}):
            raise InputError(f"{where}.resources.{kind}", value=name, remedy=_REMEDY)


def _check_variable(variable: Mapping[str, Any], where: str) -> None:
    name = str(variable.get("name", ""))
    rule = EnvVar.rules[0]
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise InputError(f"{where}.name", value=name, remedy="is not a valid environment variable name")
    if not rule.holds(EnvVar.model_construct(name=name)):
        raise InputError(f"{where}.name", value=name, remedy=rule.remedy)
