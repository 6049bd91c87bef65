"""A worker's CPU, memory and shared memory, unless the template states its own. Pure.

Without requests the trainer would be BestEffort: the first to be starved of CPU by other pods of its node,
and the first to be killed where memory is short. Without a volume /dev/shm has 64 MiB, less than data loaders
and NCCL need.
"""

from collections.abc import Mapping
from typing import Any

from rightsizer_operator.values.names import CONTAINER
from rightsizer_operator.values.requests import Amounts

Object = Mapping[str, Any]

_SHM, _VOLUME = "/dev/shm", "rightsizer-shm"  # noqa: S108 -- the pod's own
_MIB = 2**20
_ROUNDING = 1e-6  # of floats: 50m must not become 49m


def unstated(spec: Object, requests: Amounts) -> dict[str, str]:
    """The requests as quantities, without resources that the template limits or requests itself.

    A request above the template's limit would be refused.
    """
    stated = {
        name
        for holder in (spec, _trainer(spec))
        for values in (holder.get("resources") or {}).values()
        if isinstance(values, Mapping)
        for name in values
    }
    rounded = {
        "cpu": f"{int(1000 * requests.get('cpu', 0.0) + _ROUNDING)}m",
        "memory": f"{int(requests.get('memory', 0.0) / _MIB)}Mi",
    }
    return {name: text for name, text in rounded.items() if name not in stated and text not in ("0m", "0Mi")}


def shared_memory(spec: Object, limit_bytes: int) -> list[dict[str, Any]]:
    """The volume of /dev/shm; none if the template has one. Its pages are memory of the container."""
    limit = {"sizeLimit": f"{limit_bytes // _MIB}Mi"} if limit_bytes >= _MIB else {}
    volume = {"name": _VOLUME, "emptyDir": {"medium": "Memory", **limit}}
    return [volume] if shared_memory_mount(spec) else []


def shared_memory_mount(spec: Object) -> list[dict[str, Any]]:
    """The trainer's mount of that volume; none where the template mounts one there or takes the node's."""
    mounts = _trainer(spec).get("volumeMounts") or ()
    taken = any(str(mount.get("mountPath")).rstrip("/") == _SHM for mount in mounts)
    return [] if taken or spec.get("hostIPC") else [{"name": _VOLUME, "mountPath": _SHM}]


def _trainer(spec: Object) -> Object:
    """The trainer's container in the template."""
    containers: dict[str, Object] = {each.get("name"): each for each in spec.get("containers") or ()}
    return containers.get(CONTAINER, {})
