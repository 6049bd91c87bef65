"""Leader election by a Lease, which another replica takes over seconds after the leader stops renewing.

The election is the official client's. Its Lease lock (37.0) cannot create a Lease, so the lock is ours.
"""

import asyncio
import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.values.lease import LeaseSpec

_LOG = logging.getLogger("rightsizer.operator")
LEASE_S, _RENEW_DEADLINE_S, _RETRY_S, _REQUEST_TIMEOUT_S = 8, 5, 2, 3
"""leaseDuration, renewDeadline, retryPeriod of client-go, and the timeout of one request."""
_FENCE_S = LEASE_S - 1
"""Seconds after its last renewal in which the leader may write; shorter than the lease."""


class _Lock(BaseLock):
    """The Lease lock. An unavailable API server is a failed try, not an error."""

    def __init__(self, kube: KubeClient, name: str, namespace: str, identity: str) -> None:
        super().__init__(name, namespace, identity)
        self._kube = kube
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease: dict[str, Any] = {}
        self._renewed_at = float("-inf")

    def is_held(self) -> bool:
        """Whether no other replica can hold the Lease yet, even if this process was paused."""
        return time.monotonic() - self._renewed_at < _FENCE_S

    async def get(self, name: str, namespace: str) -> Any:
        """The election record, or the error."""
        del namespace
        try:
            self._lease = await self._kube.call("GET", f"{self._path}/{name}", timeout_s=_REQUEST_TIMEOUT_S)
        except ApiError as error:
            exception = ApiException(status=error.status, reason=str(error))
            exception.body = json.dumps({"code": error.status})
            return False, exception
        spec = LeaseSpec.of(self._lease)
        duration = str(spec.duration_s) if spec.duration_s else None
        return True, LeaderElectionRecord(spec.holder or None, duration, spec.acquired, spec.renewed)

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create the Lease; whether that succeeded."""
        metadata = {"name": name, "namespace": namespace}
        self._lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        return await self._write("POST", self._path, election_record)

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Renew or take over the Lease; of two replicas that try, the resourceVersion lets one win."""
        del namespace
        return await self._write("PUT", f"{self._path}/{name}", updated_record)

    async def release(self) -> None:
        """Release a held Lease, so that another replica need not wait for its expiry."""
        if LeaseSpec.of(self._lease).holder == self.identity:
            await self._write("PUT", f"{self._path}/{self.name}", LeaderElectionRecord("", None, None, None))

    async def _write(self, method: str, path: str, record: LeaderElectionRecord) -> bool:
        holder = record.holder_identity or ""
        spec = LeaseSpec.of(self._lease).held_by(holder, dt.datetime.now(dt.UTC), duration_s=LEASE_S)
        began, body = time.monotonic(), {**self._lease, "spec": spec.document()}
        try:
            self._lease = await self._kube.call(
                method, path, body=body, timeout_s=_REQUEST_TIMEOUT_S, fenced=False
            )
        except ApiError as error:
            _LOG.info("cannot acquire or renew the lease: %s", error)
            return False
        self._renewed_at = began if holder == self.identity else float("-inf")
        return True


async def run_elected(
    kube: KubeClient,
    *,
    name: str,
    namespace: str,
    identity: str,
    lead: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Run `lead` while this replica holds the Lease; wait for the Lease again when it is lost."""
    while True:
        lock = _Lock(kube, name, namespace, identity)
        kube.may_write = lock.is_held
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        leaders: list[asyncio.Task[Any] | None] = []

        async def started(
            ended: asyncio.Future[None] = ended, leaders: list[asyncio.Task[Any] | None] = leaders
        ) -> None:
            _LOG.info("%s acquired the lease", identity)
            leaders.append(asyncio.current_task())
            try:
                await lead()
            except Exception as error:
                ended.set_exception(error)
                raise
            finally:
                if not ended.done():
                    ended.set_result(None)

        async def stopped() -> None:
            _LOG.warning("%s lost the lease", identity)

        config = Config(
            lock,
            lease_duration=LEASE_S,
            renew_deadline=_RENEW_DEADLINE_S,
            retry_period=_RETRY_S,
            onstarted_leading=started,
            onstopped_leading=stopped,
        )
        election = asyncio.create_task(LeaderElection(config).run())
        try:
            await asyncio.wait((election, ended), return_when=asyncio.FIRST_COMPLETED)
            if election.done():
                await election  # raises its error: otherwise no replica would lead, silently
            if leaders:  # an error of the leader ends the process; a new one starts with an empty cache
                await ended
        finally:
            leading = [task for task in leaders if task is not None]
            for task in (election, *leading):
                task.cancel()
            await asyncio.wait((election, *leading))
            await lock.release()
