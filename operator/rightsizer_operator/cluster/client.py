"""The one door to the Kubernetes API: plain JSON in and out through the official client's asyncio half."""

import base64
import json
import secrets
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from kubernetes.aio import client

from rightsizer_api.plan import GROUP, KIND, VERSION
from rightsizer_operator.cluster.metrics import Metrics
from rightsizer_operator.values import names

__all__ = ["ApiError", "KubeClient", "NameTakenError", "api_client", "plans_path"]

Object = dict[str, Any]

_PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    KIND: f"/apis/{GROUP}/{VERSION}/namespaces/{{}}/trainingplans",
}
_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_STRATEGIC = "application/strategic-merge-patch+json"
_TIMEOUT_S = 30.0
_CHUNK = 250
_KEY_BYTES = 32


class ApiError(Exception):
    """The API server's refusal, or (status 0) that it could not be asked."""

    def __init__(self, status: int, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


class NameTakenError(ApiError):
    """A child's name belongs to somebody else."""

    def __init__(self, what: str) -> None:
        super().__init__(409, f"{what} exists and is not this plan's; rename the plan, or remove it")


def plans_path(namespace: str, name: str) -> str:
    """A plan's address."""
    return f"{_PATHS[KIND].format(namespace)}/{name}"


def api_client(
    configuration: client.Configuration, *, proxies: Mapping[str, str] | None = None
) -> client.ApiClient:
    """A client that asks the environment for its proxy once: not at each request, in a thread, with ~/.netrc.

    `proxies` are those of the environment where not given, by scheme; `no` names hosts that need none.
    """
    configuration.client_session_kwargs = {"trust_env": False}
    known = urllib.request.getproxies() if proxies is None else proxies
    server = urlsplit(configuration.host)
    if not configuration.proxy and not urllib.request.proxy_bypass(server.hostname or "", known):
        configuration.proxy = known.get(server.scheme)
    return client.ApiClient(configuration)


class KubeClient:
    """Every request of the operator; each is counted, and none is repeated here.

    `may_write` is asked before each write: a process that was stopped must not go on where it was.
    """

    def __init__(self, api: client.ApiClient, metrics: Metrics, *, dry_run: bool = False) -> None:
        self.may_write: Callable[[], bool] = lambda: True
        self._api = api
        self._metrics = metrics
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
        """One request; ApiError on anything but success, and on a write that is not ours to make."""
        if method != "GET" and fenced and not self.may_write():
            raise ApiError(0, "the lease may be another's by now")
        parameters = dict(query or {})
        if self._dry_run and method != "GET":
            parameters["dryRun"] = "All"
        _, address, headers, _, _ = await self._api.param_serialize(  # a body is plain already
            method,
            path,
            query_params=list(parameters.items()),
            header_params={"Accept": accept, "Content-Type": content},
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._api.call_api(method, address, headers, body, _request_timeout=timeout_s)
            text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._metrics.requested(method, 0)
            raise ApiError(0, f"the API server cannot be reached: {error}") from error
        self._metrics.requested(method, answer.status)
        if answer.status >= 400:
            raise _refusal(answer.status, text, answer.getheaders())
        found: Object = json.loads(text)
        return found

    async def every(self, path: str, *, metadata_only: bool = False, **query: str) -> AsyncIterator[Object]:
        """Every object of a collection, fetched in pieces."""
        accept = _METADATA if metadata_only else "application/json"
        more: dict[str, Any] = {**query, "limit": _CHUNK}
        while True:
            page = await self.call("GET", path, query=more, accept=accept)
            for item in page["items"] or ():  # a list without bodies that is empty says null
                item["metadata"].pop("managedFields", None)  # of no use here, and as large as the rest
                yield item
            mark = page["metadata"].get("continue")
            if not mark:
                return
            more["continue"] = mark

    async def children(self, kind: str, namespace: str, selector: str) -> list[Object]:
        """Objects of one kind in a namespace with these labels."""
        return [each async for each in self.every(_PATHS[kind].format(namespace), labelSelector=selector)]

    async def apply(self, child: Mapping[str, Any]) -> Object:
        """See that a child exists; one that does is made what it should be, by server-side apply.

        Created first, looked at only if that is refused: an object of somebody else's is never touched.
        """
        metadata, kind = child["metadata"], child["kind"]
        if kind == "Secret":
            return await self.create_key(child)
        name, query = metadata["name"], {"fieldManager": names.FIELD_MANAGER}
        path = _PATHS[kind].format(metadata["namespace"])
        try:
            return await self.call("POST", path, body=child, query=query)
        except ApiError as error:
            if error.status != 409:
                raise
            found = [there async for there in self.every(path, fieldSelector=f"metadata.name={name}")]
            if not found:
                raise
        there, owner = found[0], metadata["ownerReferences"][0]["uid"]
        if owner not in {o["uid"] for o in there["metadata"].get("ownerReferences", ())}:
            raise NameTakenError(f"{kind} {name}")
        if "deletionTimestamp" in there["metadata"]:
            raise ApiError(409, f"{kind} {name} is still on its way out")
        if kind == "Job":
            return await self._labelled(there, metadata["labels"])
        query["force"] = "true"  # over what this operator itself said when it created the object
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

    async def _labelled(self, job: Object, labels: Mapping[str, str]) -> Object:
        """A Job that is there, with its labels put back if anybody took one: no watch sees it without."""
        metadata = job["metadata"]
        if labels.items() <= metadata.get("labels", {}).items():
            return job
        path = f"{_PATHS['Job'].format(metadata['namespace'])}/{metadata['name']}"
        body = {"metadata": {"labels": dict(labels)}}
        return await self.call(
            "PATCH", path, body=body, query={"fieldManager": names.FIELD_MANAGER}, content=_MERGE
        )

    async def patch_job(
        self, namespace: str, name: str, spec: Mapping[str, Any], notes: Mapping[str, str]
    ) -> Object:
        """Change fields of a Job's spec, and annotations."""
        path = f"{_PATHS['Job'].format(namespace)}/{name}"
        query = {"fieldManager": names.FIELD_MANAGER}
        body = {"metadata": {"annotations": dict(notes)}, "spec": dict(spec)}
        return await self.call("PATCH", path, body=body, query=query, content=_MERGE)

    async def patch_workload(self, version: str, namespace: str, name: str, *, active: bool) -> None:
        """Let Kueue run a Workload, or not."""
        path = f"/apis/kueue.x-k8s.io/{version}/namespaces/{namespace}/workloads/{name}"
        query = {"fieldManager": names.FIELD_MANAGER}
        await self.call("PATCH", path, body={"spec": {"active": active}}, query=query, content=_MERGE)

    async def patch_status(self, namespace: str, name: str, version: str, patch: Mapping[str, Any]) -> Object:
        """Change a plan's status, unless the plan has changed since `version`: that is a 409."""
        body = {"metadata": {"resourceVersion": version}, "status": patch}
        path = f"{plans_path(namespace, name)}/status"
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self.call("PATCH", path, body=body, query=query, content=_MERGE)

    async def fail_pod(self, namespace: str, name: str, uid: str) -> None:
        """Say for a dead node what it cannot: the pod has failed, by no fault of its own.

        A Job keeps a finalizer on its pods and replaces none before it has an end, so that a forced deletion
        alone would change nothing. The pod garbage collector does the same for nodes that are gone.
        """
        reason, message = "DeadNode", "its node does not answer"
        ended = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        status = {"phase": "Failed", "reason": reason, "message": message, "conditions": [ended]}
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
        self, kind: str, namespace: str, name: str, *, uid: str = "", force: bool = False
    ) -> None:
        """Delete a child; one that is not there is no error."""
        options: Object = {"propagationPolicy": "Foreground" if kind == "Job" else "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if force:
            options["gracePeriodSeconds"] = 0
        try:
            await self.call("DELETE", f"{_PATHS[kind].format(namespace)}/{name}", body=options)
        except ApiError as error:
            if error.status != 404:
                raise

    async def emit(self, event: Mapping[str, Any]) -> None:
        """Create an Event."""
        await self.call("POST", f"/api/v1/namespaces/{event['metadata']['namespace']}/events", body=event)


def _refusal(status: int, text: bytes, headers: Mapping[str, str] | None) -> ApiError:
    try:
        message = str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        message = text[:200].decode(errors="replace")
    try:
        after = float((headers or {}).get("Retry-After", ""))
    except ValueError:
        after = None
    return ApiError(status, message, retry_after_s=after)
