"""Everything that the operator looks after, read in one go: what watches have missed is found so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rightsizer_api.plan import GROUP, VERSION
from rightsizer_operator.door import Door
from rightsizer_operator.names import LABEL_MANAGED, MANAGED

__all__ = ["OURS", "Survey", "survey"]

Object = Mapping[str, Any]
OURS = f"{LABEL_MANAGED}={MANAGED}"
_SUPPORTS = {"Service": "api/v1", "ReplicaSet": "apis/apps/v1", "ConfigMap": "api/v1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Objects as the API gave them; of `supports`, each with its kind, the metadata only."""

    nodes: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    supports: tuple[tuple[str, Object], ...] = ()
    plans: tuple[Object, ...] = ()


async def survey(door: Door, scopes: tuple[str, ...]) -> Survey:
    """Read all; plans last, so that none is seen without its children."""
    nodes = [node async for node in door.every("/api/v1/nodes")]
    jobs: list[Object] = []
    supports: list[tuple[str, Object]] = []
    plans: list[Object] = []
    for scope in scopes:
        jobs += [job async for job in door.every(f"/apis/batch/v1{scope}/jobs", labelSelector=OURS)]
        for kind, group in _SUPPORTS.items():
            path = f"/{group}{scope}/{kind.lower()}s"
            found = door.every(path, metadata_only=True, labelSelector=OURS)
            supports += [(kind, each) async for each in found]
        path = f"/apis/{GROUP}/{VERSION}{scope}/trainingplans"
        plans += [plan async for plan in door.every(path)]
    return Survey(nodes=tuple(nodes), jobs=tuple(jobs), supports=tuple(supports), plans=tuple(plans))
