"""The user's part of a pod, merged into ours: a small strategic merge. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rightsizer.errors import InputError
from rightsizer_api.launch import EnvVar
from rightsizer_operator.values.names import CONTAINER, GPU_RESOURCE

__all__ = ["merge", "merged_template"]

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists merged by a key of their items, as Kubernetes does; other lists of the user's replace ours."""
_APPENDED = ("tolerations",)
_OURS = ("restartPolicy", "hostname", "subdomain", "terminationGracePeriodSeconds")
_FIELD = "spec.launch.podTemplate"
_REMEDY = "is set by rightsizer; remove it"


def merged_template(ours: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Our pod template with the user's laid over it; what torchrun and rightsizer set is refused."""
    if not theirs:
        return dict(ours)
    _check(theirs)
    spec = dict(theirs.get("spec") or {})
    metadata = theirs.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    result: dict[str, Any] = merge({"metadata": kept, "spec": spec}, {"metadata": ours.get("metadata", {})})
    return dict(merge({"spec": ours["spec"]}, result))


def merge(base: Any, over: Any, *, name: str = "") -> Any:
    """`over` laid over `base`: mappings by key, lists by their merge key, all else replaced."""
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
    """Ours first and in our order, then theirs."""
    given = {item.get(key): item for item in over}
    merged = [merge(item, given.pop(item.get(key))) if item.get(key) in given else item for item in base]
    return [*merged, *given.values()]


def _check(theirs: Mapping[str, Any]) -> None:
    """Refuses what would break the launch; the API server refuses the rest when the Job is made."""
    spec = theirs.get("spec") or {}
    for name in _OURS:
        if name in spec and not (name == "restartPolicy" and spec[name] == "Never"):
            raise InputError(f"{_FIELD}.spec.{name}", value=spec[name], remedy=_REMEDY)
    for index, container in enumerate(_items(spec, "containers")):
        if container.get("name") == CONTAINER:
            _check_trainer(container, f"{_FIELD}.spec.containers[{index}]")
        for position, variable in enumerate(_items(container, "env", f".containers[{index}]")):
            _check_variable(variable, f"{_FIELD}.spec.containers[{index}].env[{position}]")


def _check_trainer(container: Mapping[str, Any], where: str) -> None:
    for name in ("command", "args", "terminationMessagePath", "terminationMessagePolicy"):
        if name in container:
            raise InputError(f"{where}.{name}", value=container[name], remedy=_REMEDY)
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        if GPU_RESOURCE in (resources.get(kind) or {}):
            raise InputError(f"{where}.resources.{kind}", value=GPU_RESOURCE, remedy=_REMEDY)


def _items(parent: Mapping[str, Any], name: str, where: str = "") -> Sequence[Mapping[str, Any]]:
    found = parent.get(name) or []
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise InputError(f"{_FIELD}.spec{where}.{name}", value=found, remedy="must be a list of mappings")
    return found


def _check_variable(variable: Mapping[str, Any], where: str) -> None:
    name = str(variable.get("name", ""))
    rule = EnvVar.rules[0]
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise InputError(f"{where}.name", value=name, remedy="is no name of an environment variable")
    if not rule.holds(EnvVar.model_construct(name=name)):
        raise InputError(f"{where}.name", value=name, remedy=rule.remedy)
