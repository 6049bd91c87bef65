"""The Kubernetes API client: JSON in and out through the official client's asyncio transport."""

import base64
import json
import secrets
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp
from kubernetes.aio import client

from rightsizer_api.plan import GROUP, KIND, VERSION
from rightsizer_operator.values import names
from rightsizer_operator.values.carriers import JOB_SET_API, TRAINER_API, remedy
from rightsizer_operator.values.metadata import (
    api_version_of,
    is_being_deleted,
    owner_uids,
    without_managed_fields,
)
from rightsizer_operator.values.pods import PodPhase

Object = dict[str, Any]

_PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "JobSet": f"/apis/{JOB_SET_API}/namespaces/{{}}/jobsets",
    "TrainJob": f"/apis/{TRAINER_API}/namespaces/{{}}/trainjobs",
    "TrainingRuntime": f"/apis/{TRAINER_API}/namespaces/{{}}/trainingruntimes",
    "ResourceClaimTemplate": "/apis/{api}/namespaces/{}/resourceclaimtemplates",
    KIND: f"/apis/{GROUP}/{VERSION}/namespaces/{{}}/trainingplans",
}
_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_STRATEGIC = "application/strategic-merge-patch+json"
_TIMEOUT_S = 30.0
PAGE_SIZE = 100  # objects; a page of 250 pods took 23 MiB for a moment
_KEY_BYTES = 32
_FOREGROUND = ("Job", "JobSet")
"""Kinds that stay until their pods have ended, so that the next attempt waits for these."""


class ApiError(Exception):
    """An error response of the API server; status 0: no response."""

    def __init__(self, status: int, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


class NameTakenError(ApiError):
    """An object with the child's name exists and another owner has it."""

    def __init__(self, child: str) -> None:
        super().__init__(
            409, f"{child} exists and is not owned by this plan; rename the plan or delete the object"
        )


def plans_path(namespace: str, name: str) -> str:
    """The API path of a plan."""
    return f"{_PATHS[KIND].format(namespace)}/{name}"


def api_client(
    configuration: client.Configuration, *, proxies: Mapping[str, str] | None = None
) -> client.ApiClient:
    """A client that reads the proxy environment once. aiohttp would read it and ~/.netrc at each request.

    `proxies` by scheme; None: the environment's. Its key `no` lists the hosts that need no proxy.
    """
    configuration.client_session_kwargs = {"trust_env": False}
    by_scheme = urllib.request.getproxies() if proxies is None else proxies
    server = urlsplit(configuration.host)
    if not configuration.proxy and not urllib.request.proxy_bypass(server.hostname or "", by_scheme):
        configuration.proxy = by_scheme.get(server.scheme)
    return client.ApiClient(configuration)


class RequestCounter(Protocol):
    """The counter of the client's requests."""

    def count_request(self, method: str, status: int) -> None:
        """Count a request by the response's HTTP status; 0: no response."""


class KubeClient:
    """All requests of the operator. Each is counted; none is retried here.

    `may_write` fences writes: a process that was paused may have lost its lease meanwhile.
    """

    def __init__(self, api: client.ApiClient, requests: RequestCounter, *, dry_run: bool = False) -> None:
        self.may_write: Callable[[], bool] = lambda: True
        self._api = api
        self._requests = requests
        self._dry_run = dry_run

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        content: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = _TIMEOUT_S,
        fenced: bool = True,
    ) -> Object:
        """One request; ApiError on an error response, or on a write without the lease."""
        if method != "GET" and fenced and not self.may_write():
            raise ApiError(0, "another replica may hold the lease")
        parameters = dict(query or {})
        if self._dry_run and method != "GET":
            parameters |= {"dryRun": "All"}
        _, url, headers, _, _ = await self._api.param_serialize(  # the body is JSON already
            method,
            path,
            query_params=list(parameters.items()),
            header_params={"Accept": accept, "Content-Type": content},
            auth_settings=["BearerToken"],
        )
        try:
            response = await self._api.call_api(method, url, headers, body, _request_timeout=timeout_s)
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._requests.count_request(method, 0)
            raise ApiError(0, f"cannot reach the API server: {error}") from error
        self._requests.count_request(method, response.status)
        if response.status >= 400:
            raise _error(response.status, text, response.getheaders())
        document: Object = json.loads(text)
        return document

    async def every(self, path: str, *, metadata_only: bool = False, **query: str) -> AsyncIterator[Object]:
        """All objects of a collection, fetched in pages."""
        accept = _METADATA if metadata_only else "application/json"
        parameters: dict[str, Any] = {**query, "limit": PAGE_SIZE}
        while True:
            page = await self.call("GET", path, query=parameters, accept=accept)
            for item in page["items"] or ():  # an empty metadata-only list has null items
                yield without_managed_fields(item)
            token = page["metadata"].get("continue")
            if not token:
                return
            parameters["continue"] = token

    async def list(self, kind: str, namespace: str, selector: str) -> list[Object]:
        """The objects of a kind in a namespace that match a label selector."""
        return [item async for item in self.every(_PATHS[kind].format(namespace), labelSelector=selector)]

    async def apply(self, child: Mapping[str, Any]) -> Object:
        """Create a child, or update it by server-side apply if it exists.

        Creates first and reads only after a conflict. An object with another owner is never changed.
        """
        metadata, kind = child["metadata"], child["kind"]
        if kind == "Secret":
            return await self.create_key(child)
        name, query = metadata["name"], {"fieldManager": names.FIELD_MANAGER}
        path = _PATHS[kind].format(metadata["namespace"], api=api_version_of(child))
        try:
            return await self.call("POST", path, body=child, query=query)
        except ApiError as error:
            if error.status != 409:
                raise
            existing = [item async for item in self.every(path, fieldSelector=f"metadata.name={name}")]
            if not existing:
                raise
        current = existing[0]
        if owner_uids(child).isdisjoint(owner_uids(current)):
            raise NameTakenError(f"{kind} {name}")
        if is_being_deleted(current):
            raise ApiError(409, f"{kind} {name} is still terminating")
        if remedy(kind):
            return await self._restore_labels(kind, current, metadata["labels"])
        query["force"] = "true"  # takes over the fields that this operator set when it created the object
        return await self.call("PATCH", f"{path}/{name}", body=child, query=query, content=_APPLY)

    async def create_key(self, secret: Mapping[str, Any]) -> Object:
        """Create a Secret with a random key. One that exists stays: the operator may not read Secrets."""
        path = _PATHS["Secret"].format(secret["metadata"]["namespace"])
        data = {names.KEY: base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()}
        try:
            await self.call(
                "POST", path, body={**secret, "data": data}, query={"fieldManager": names.FIELD_MANAGER}
            )
        except ApiError as error:
            if error.status != 409:
                raise
        return dict(secret)

    async def _restore_labels(self, kind: str, carrier: Object, labels: Mapping[str, str]) -> Object:
        """An existing carrier, with its labels restored if one is missing: the watch selects by label."""
        metadata = carrier["metadata"]
        if labels.items() <= metadata.get("labels", {}).items():
            return {**carrier, "kind": kind}  # an item of a list has no kind
        path = f"{_PATHS[kind].format(metadata['namespace'])}/{metadata['name']}"
        body = {"metadata": {"labels": dict(labels)}}
        return await self.call(
            "PATCH", path, body=body, query={"fieldManager": names.FIELD_MANAGER}, content=_MERGE
        )

    async def patch_job(
        self, kind: str, namespace: str, name: str, spec: Mapping[str, Any], annotations: Mapping[str, str]
    ) -> Object:
        """Merge-patch the spec and the annotations of a Job or its carrier."""
        path = f"{_PATHS[kind].format(namespace)}/{name}"
        query = {"fieldManager": names.FIELD_MANAGER}
        body = {"metadata": {"annotations": dict(annotations)}, "spec": dict(spec)}
        return await self.call("PATCH", path, body=body, query=query, content=_MERGE)

    async def patch_workload(self, version: str, namespace: str, name: str, *, active: bool) -> None:
        """Set a Workload's spec.active."""
        path = f"/apis/kueue.x-k8s.io/{version}/namespaces/{namespace}/workloads/{name}"
        query = {"fieldManager": names.FIELD_MANAGER}
        await self.call("PATCH", path, body={"spec": {"active": active}}, query=query, content=_MERGE)

    async def patch_plan(self, namespace: str, name: str, uid: str, spec: Mapping[str, Any]) -> Object:
        """Merge-patch a plan's spec; an error if its uid is another."""
        body = {"metadata": {"uid": uid}, "spec": dict(spec)}
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self.call("PATCH", plans_path(namespace, name), body=body, query=query, content=_MERGE)

    async def patch_status(self, namespace: str, name: str, version: str, patch: Mapping[str, Any]) -> Object:
        """Merge-patch a plan's status; 409 if the plan has changed since `version`."""
        body = {"metadata": {"resourceVersion": version}, "status": patch}
        path = f"{plans_path(namespace, name)}/status"
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self.call("PATCH", path, body=body, query=query, content=_MERGE)

    async def fail_pod(self, namespace: str, name: str, uid: str) -> None:
        """Mark a pod on a dead node as failed by a disruption.

        The Job controller's finalizer keeps the pod until it is terminal, so a force delete alone would not
        get it replaced. The pod garbage collector does the same for deleted nodes.
        """
        reason, message = "DeadNode", "its node does not respond"
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        status = {"phase": PodPhase.FAILED, "reason": reason, "message": message, "conditions": [condition]}
        path = f"{_PATHS['Pod'].format(namespace)}/{name}/status"
        body = {"metadata": {"uid": uid}, "status": status}
        try:
            await self.call(
                "PATCH", path, body=body, query={"fieldManager": names.FIELD_MANAGER}, content=_STRATEGIC
            )
        except ApiError as error:
            if error.status != 404:
                raise

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str = "", version: str = "", force: bool = False
    ) -> None:
        """Delete a child or a plan; a missing one is no error."""
        options: Object = {"propagationPolicy": "Foreground" if kind in _FOREGROUND else "Background"}
        required = {"uid": uid, "resourceVersion": version}
        if uid or version:
            options["preconditions"] = {name: value for name, value in required.items() if value}
        if force:
            options |= {"gracePeriodSeconds": 0}
        try:
            await self.call("DELETE", f"{_PATHS[kind].format(namespace)}/{name}", body=options)
        except ApiError as error:
            if error.status != 404:
                raise

    async def create_event(self, event: Mapping[str, Any]) -> None:
        """Create an Event."""
        await self.call("POST", f"/api/v1/namespaces/{event['metadata']['namespace']}/events", body=event)


def _error(status: int, text: bytes, headers: Mapping[str, str] | None) -> ApiError:
    try:
        message = str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        message = text[:200].decode(errors="replace")
    try:
        after = float((headers or {}).get("Retry-After", ""))
    except ValueError:
        after = None
    return ApiError(status, message, retry_after_s=after)
