"""A full list of the operator's objects, which repairs what the watches missed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from rightsizer_api.plan import GROUP, VERSION
from rightsizer_engine.values import immutable
from rightsizer_operator.cluster.backoff import Backoff
from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.values.metadata import Key, is_being_deleted, owner_uids, plan_key
from rightsizer_operator.values.names import LABEL_MANAGED, MANAGED
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_operator.values.snapshot import AttemptJob, Rendezvous

Object = Mapping[str, Any]
Child = tuple[Key, str, tuple[str, ...]]
T = TypeVar("T")
MANAGED_SELECTOR = f"{LABEL_MANAGED}={MANAGED}"
_LOG = logging.getLogger("rightsizer.operator")
_BUSY = (429, 503)
_BACKOFF, _RETRIES = Backoff(first_s=0.2, longest_s=3.2), 7
_CHILD_PATHS = {
    "Service": "api/v1",
    "ConfigMap": "api/v1",
    "NetworkPolicy": "apis/networking.k8s.io/v1",
}


@immutable
class Listing:
    """Plans as API objects; of the others only the parsed values, because a cluster has many.

    `children` are the children other than Jobs: the plan, kind/name, and the uids of their owners.
    `rendezvous` are the stores among them.
    """

    nodes: tuple[ClusterNode, ...] = ()
    jobs: tuple[tuple[Key, AttemptJob], ...] = ()
    children: tuple[Child, ...] = ()
    rendezvous: tuple[tuple[Key, Rendezvous], ...] = ()
    plans: tuple[Object, ...] = ()


async def relist(
    kube: KubeClient,
    scopes: tuple[str, ...],
    *,
    claims_api: str = "",
    newest: Callable[[Object], Object] = lambda plan: plan,
) -> Listing:
    """List everything. Plans last, so that no plan is seen without its children.

    `claims_api` is the group and version of claims; empty: pods have none. `newest` replaces a listed plan by
    one that is in memory already, so that no second copy of all plans is.
    """
    child_paths = _CHILD_PATHS | ({"ResourceClaimTemplate": f"apis/{claims_api}"} if claims_api else {})

    async def nodes() -> list[ClusterNode]:
        return [node async for raw in kube.every("/api/v1/nodes") for node in ClusterNode.all_of(raw)]

    async def jobs(scope: str) -> list[tuple[Key, AttemptJob]]:
        listed = kube.every(f"/apis/batch/v1{scope}/jobs", labelSelector=MANAGED_SELECTOR)
        read = [_readable(raw) async for raw in listed]
        return [job for job in read if job is not None]

    async def children(scope: str, kind: str) -> list[Child]:
        path = f"/{child_paths[kind]}{scope}/{_plural(kind)}"
        items = kube.every(path, metadata_only=True, labelSelector=MANAGED_SELECTOR)
        return [_child(kind, item["metadata"]) async for item in items if _is_kept(item)]

    async def stores(scope: str) -> list[tuple[Child, tuple[Key, Rendezvous]]]:
        path = f"/apis/apps/v1{scope}/replicasets"
        listed = kube.every(path, labelSelector=MANAGED_SELECTOR)
        return [
            (_child("ReplicaSet", item["metadata"]), (plan_key(item), Rendezvous.of(item)))
            async for item in listed
            if _is_kept(item)
        ]

    async def plans(scope: str) -> list[Object]:
        path = f"/apis/{GROUP}/{VERSION}{scope}/trainingplans"
        return [newest(plan) async for plan in kube.every(path)]

    listing = Listing(nodes=tuple(await retry_when_busy(nodes)))
    for scope in scopes:
        scope_jobs = await retry_when_busy(partial(jobs, scope))
        scope_children = [
            item for kind in child_paths for item in await retry_when_busy(partial(children, scope, kind))
        ]
        scope_stores = await retry_when_busy(partial(stores, scope))
        scope_plans = await retry_when_busy(partial(plans, scope))
        listing = replace(
            listing,
            jobs=(*listing.jobs, *scope_jobs),
            children=(*listing.children, *scope_children, *(child for child, _ in scope_stores)),
            rendezvous=(*listing.rendezvous, *(store for _, store in scope_stores)),
            plans=(*listing.plans, *scope_plans),
        )
    return listing


async def retry_when_busy(
    read: Callable[[], Awaitable[T]], *, backoff: Backoff = _BACKOFF, retries: int = _RETRIES
) -> T:
    """Retry one list while the API server is overloaded, instead of starting the relist over."""
    for failures in range(1, retries + 1):
        try:
            return await read()
        except ApiError as error:
            if error.status not in _BUSY:
                raise
            await asyncio.sleep(backoff.wait_s(failures, at_least_s=error.retry_after_s))
    return await read()


def _readable(raw: Object) -> tuple[Key, AttemptJob] | None:
    """A Job as far as it can be read: a tenant can label any Job as ours, and must not stop the relist."""
    try:
        return plan_key(raw), AttemptJob.of(raw)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        _LOG.warning("cannot read Job %s: %r", raw["metadata"].get("name"), error)
        return None


def _plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def _is_kept(raw: Object) -> bool:
    return not is_being_deleted(raw)


def _child(kind: str, metadata: Object) -> Child:
    item = {"metadata": metadata}
    return plan_key(item), f"{kind}/{metadata['name']}", tuple(owner_uids(item))
