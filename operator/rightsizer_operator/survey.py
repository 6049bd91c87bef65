"""Everything that the operator looks after, read in one go: what watches have missed is found so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rightsizer_api.plan import GROUP, VERSION
from rightsizer_operator.door import Door
from rightsizer_operator.inventory import Node
from rightsizer_operator.names import LABEL_MANAGED, MANAGED
from rightsizer_operator.world import Job, Key, plan_key

__all__ = ["OURS", "Survey", "survey"]

Object = Mapping[str, Any]
OURS = f"{LABEL_MANAGED}={MANAGED}"
_SUPPORTS = {"Service": "api/v1", "ReplicaSet": "apis/apps/v1", "ConfigMap": "api/v1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Plans as the API gave them; of the rest only what is needed: it is much, and read while much is done.

    `supports` are the children that are no Jobs: of which plan, kind and name, and the uids of their owners.
    """

    nodes: tuple[Node, ...] = ()
    jobs: tuple[tuple[Key, Job], ...] = ()
    supports: tuple[tuple[Key, str, tuple[str, ...]], ...] = ()
    plans: tuple[Object, ...] = ()


async def survey(door: Door, scopes: tuple[str, ...]) -> Survey:
    """Read all; plans last, so that none is seen without its children."""
    nodes = [Node.of(raw) async for raw in door.every("/api/v1/nodes")]
    jobs: list[tuple[Key, Job]] = []
    supports: list[tuple[Key, str, tuple[str, ...]]] = []
    plans: list[Object] = []
    for scope in scopes:
        listed = door.every(f"/apis/batch/v1{scope}/jobs", labelSelector=OURS)
        jobs += [(plan_key(raw), Job.of(raw)) async for raw in listed]
        for kind, group in _SUPPORTS.items():
            path = f"/{group}{scope}/{kind.lower()}s"
            found = door.every(path, metadata_only=True, labelSelector=OURS)
            supports += [_support(kind, each["metadata"]) async for each in found if _stays(each)]
        path = f"/apis/{GROUP}/{VERSION}{scope}/trainingplans"
        plans += [plan async for plan in door.every(path)]
    return Survey(nodes=tuple(nodes), jobs=tuple(jobs), supports=tuple(supports), plans=tuple(plans))


def _stays(raw: Object) -> bool:
    return "deletionTimestamp" not in raw["metadata"]


def _support(kind: str, metadata: Object) -> tuple[Key, str, tuple[str, ...]]:
    owners = tuple(owner["uid"] for owner in metadata.get("ownerReferences", ()))
    return plan_key({"metadata": metadata}), f"{kind}/{metadata['name']}", owners
