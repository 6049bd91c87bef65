"""Security contexts of a plan's pods: Pod Security `restricted`, unless the template differs. Pure.

A template that states a user, a group or `runAsNonRoot` replaces ours as a whole, because a user id is only
right together with the image and the volumes that it is for.
"""

from collections.abc import Mapping
from typing import Any

from rightsizer_operator.values.names import CONTAINER

Object = Mapping[str, Any]

USER_ID = 65532
"""The user of containers whose template states none; by convention "nonroot"."""
_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_USER_FIELDS = ("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup")


def states_user(spec: Object) -> bool:
    """Whether a template's pod spec states the user that the trainer runs as."""
    return bool(_stated(spec))


def pod_security(spec: Object) -> dict[str, Any]:
    """The pod's settings under those of the template, which are merged later. Volumes belong to our group."""
    group = {} if states_user(spec) else {"fsGroup": USER_ID, "fsGroupChangePolicy": "OnRootMismatch"}
    return {"seccompProfile": {"type": "RuntimeDefault"}, **group}


def trainer_security(spec: Object) -> dict[str, Any]:
    """The trainer's settings under those of the template. Sidecars keep the user of their image."""
    if _trainer(spec).get("privileged"):
        return _user(spec)  # the API server rejects a privileged container with the restrictions below
    return {**_user(spec), **_RESTRICTED}


def store_security(spec: Object) -> dict[str, Any]:
    """The rendezvous store's settings: the trainer's user, without privileges."""
    stated = {name: value for name, value in _trainer(spec).items() if name in _USER_FIELDS}
    return {**_user(spec), **stated, **_RESTRICTED, "readOnlyRootFilesystem": True}


def _user(spec: Object) -> dict[str, Any]:
    """The user under the one that the template states."""
    stated = _stated(spec)
    if not stated:
        return {"runAsNonRoot": True, "runAsUser": USER_ID}
    return {"runAsNonRoot": True} if stated.get("runAsUser") else {}


def _stated(spec: Object) -> dict[str, Any]:
    """The user fields of the template: the trainer's replace the pod's."""
    levels = (spec.get("securityContext") or {}, _trainer(spec))
    return {name: level[name] for level in levels for name in _USER_FIELDS if name in level}


def _trainer(spec: Object) -> Object:
    """The security context of the trainer in the template."""
    containers = {each.get("name"): each for each in spec.get("containers") or ()}
    security: Object = containers.get(CONTAINER, {}).get("securityContext") or {}
    return security
