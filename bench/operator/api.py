"""The benchmark's API client: the operator's, so that both have the same cost per request."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config, watch

from rightsizer_api.plan import GROUP, VERSION
from rightsizer_operator.cluster.client import ApiError, KubeClient, api_client
from rightsizer_operator.runtime.plan_metrics import Metrics

WORKERS = 16  # as many as the operator has
PATHS = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/namespaces/{}/services",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "TrainingPlan": f"/apis/{GROUP}/{VERSION}/namespaces/{{}}/trainingplans",
}


class BenchClient:
    """Create, count, delete, and watch Jobs appear."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api, self._kube = api, KubeClient(api, Metrics())

    async def create(self, raw: Mapping[str, Any]) -> None:
        """Create an object, retrying timeouts; an existing one is no error."""
        path = PATHS[raw["kind"]].format(raw["metadata"].get("namespace"))
        while True:
            try:
                await self._kube.call("POST", path, body=raw)
            except ApiError as error:
                if error.status == 0:  # a server that is too busy to answer in time
                    continue
                if error.status != 409:
                    raise
            return

    async def create_all(self, objects: Iterable[Mapping[str, Any]]) -> float:
        """Create objects, WORKERS at a time; the seconds."""
        return await self.each([lambda raw=raw: self.create(raw) for raw in objects])

    async def each(self, tasks: list[Callable[[], Awaitable[None]]]) -> float:
        """Run tasks, WORKERS at a time; the seconds."""
        left = iter(tasks)

        async def work() -> None:
            for task in left:
                await task()

        began_s = time.monotonic()
        await asyncio.gather(*(work() for _ in range(WORKERS)))
        return time.monotonic() - began_s

    async def count(self, kind: str, namespace: str) -> int:
        """The number of objects of a kind in a namespace."""
        while True:
            try:
                page = await self._kube.call("GET", PATHS[kind].format(namespace), query={"limit": 1})
                break
            except ApiError as error:
                if error.status:
                    raise
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)

    async def every(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        """All objects of a kind."""
        return [each async for each in self._kube.every(PATHS[kind].format(namespace))]

    async def clear(self, kind: str, namespace: str) -> None:
        """Delete all objects of a kind, and wait until they are gone."""
        while await self.count(kind, namespace):
            with contextlib.suppress(ApiError):  # it goes on where it was when a request takes too long
                path = PATHS[kind].format(namespace)
                await self._kube.call("DELETE", path, body={"propagationPolicy": "Background"})
            await asyncio.sleep(1)

    async def patch(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> None:
        """Change an object by a merge patch."""
        path = f"{PATHS[kind].format(namespace)}/{name}"
        await self._kube.call("PATCH", path, body=body, content="application/merge-patch+json")

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object; the garbage collector deletes its children."""
        await self._kube.call("DELETE", f"{PATHS[kind].format(namespace)}/{name}")

    async def create_finished(self, raw: Mapping[str, Any]) -> None:
        """Create a plan with its status."""
        metadata = raw["metadata"]
        await self.create({key: value for key, value in raw.items() if key != "status"})
        path = f"{PATHS['TrainingPlan'].format(metadata['namespace'])}/{metadata['name']}/status"
        body = {"status": raw["status"]}
        await self._kube.call("PATCH", path, body=body, content="application/merge-patch+json")

    async def jobs_seen(self, namespace: str, seen: dict[str, float]) -> None:
        """Note when each plan's Job is first seen; until cancelled."""
        listing = client.BatchV1Api(self._api).list_namespaced_job
        async with watch.Watch().stream(listing, namespace) as events:
            async for event in events:
                labels = event["raw_object"]["metadata"]["labels"]
                seen.setdefault(labels["rightsizer.dev/plan"], time.monotonic())


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[BenchClient]:
    """The API of a cluster."""
    await config.load_kube_config(str(kubeconfig))
    async with api_client(client.Configuration.get_default_copy()) as api:
        yield BenchClient(api)
