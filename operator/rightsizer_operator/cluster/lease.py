"""One replica acts: a Lease, taken over within seconds when its holder falls silent.

The election is the official client's; its own Lease lock (37.0) cannot create a Lease, so the lock is ours.
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

__all__ = ["LEASE_S", "hold"]

_LOG = logging.getLogger("rightsizer.operator")
LEASE_S, _RENEW_S, _RETRY_S, _ASK_S = 8, 5, 2, 3
"""Seconds: a silent holder's lease runs out; a holder that cannot renew stops; between tries; of one try."""
_WRITES_S = LEASE_S - 1
"""Seconds after the last renewal in which a holder may write: others wait longer."""


class _Lock(BaseLock):
    """A Lease. A server that is away for a while makes a failed try, never the operator's end."""

    def __init__(self, kube: KubeClient, name: str, namespace: str, identity: str) -> None:
        super().__init__(name, namespace, identity)
        self._kube = kube
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease: dict[str, Any] = {}
        self._renewed_at = float("-inf")

    def held(self) -> bool:
        """Whether nobody else can hold the Lease yet, whatever has happened to this process meanwhile."""
        return time.monotonic() - self._renewed_at < _WRITES_S

    async def get(self, name: str, namespace: str) -> Any:
        """The record, or why there is none."""
        del namespace
        try:
            self._lease = await self._kube.call("GET", f"{self._path}/{name}", timeout_s=_ASK_S)
        except ApiError as error:
            refused = ApiException(status=error.status, reason=str(error))
            refused.body = json.dumps({"code": error.status})
            return False, refused
        spec = self._lease.get("spec", {})
        duration = spec.get("leaseDurationSeconds")
        return True, LeaderElectionRecord(
            spec.get("holderIdentity") or None,
            str(duration) if duration else None,
            spec.get("acquireTime"),
            spec.get("renewTime"),
        )

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Whether the Lease was created."""
        metadata = {"name": name, "namespace": namespace}
        self._lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        return await self._write("POST", self._path, election_record)

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Whether the Lease is (still) ours; its resourceVersion lets one of two takers win."""
        del namespace
        return await self._write("PUT", f"{self._path}/{name}", updated_record)

    async def release(self) -> None:
        """Give the Lease back, if it is ours, so that another replica need not wait for it to run out."""
        if self._lease.get("spec", {}).get("holderIdentity") == self.identity:
            await self._write("PUT", f"{self._path}/{self.name}", LeaderElectionRecord("", None, None, None))

    async def _write(self, method: str, path: str, record: LeaderElectionRecord) -> bool:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        old = self._lease.get("spec", {})
        same = old.get("holderIdentity") == record.holder_identity and "acquireTime" in old
        spec = {
            "holderIdentity": record.holder_identity,
            "leaseDurationSeconds": LEASE_S,
            "acquireTime": old["acquireTime"] if same else now,
            "renewTime": now,
            "leaseTransitions": old.get("leaseTransitions", 0) + (not same),
        }
        began, body = time.monotonic(), {**self._lease, "spec": spec}
        try:
            self._lease = await self._kube.call(method, path, body=body, timeout_s=_ASK_S, fenced=False)
        except ApiError as error:
            _LOG.info("the lease is not ours: %s", error)
            return False
        self._renewed_at = began if record.holder_identity == self.identity else float("-inf")
        return True


async def hold(
    kube: KubeClient,
    *,
    name: str,
    namespace: str,
    identity: str,
    act: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Wait for the Lease, act while it is ours, and wait again when it is lost; for ever."""
    while True:
        lock = _Lock(kube, name, namespace, identity)
        kube.may_write = lock.held
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        leaders: list[asyncio.Task[Any] | None] = []

        async def acting(
            ended: asyncio.Future[None] = ended, leaders: list[asyncio.Task[Any] | None] = leaders
        ) -> None:
            _LOG.info("%s holds the lease", identity)
            leaders.append(asyncio.current_task())
            try:
                await act()
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
            renew_deadline=_RENEW_S,
            retry_period=_RETRY_S,
            onstarted_leading=acting,
            onstopped_leading=stopped,
        )
        election = asyncio.create_task(LeaderElection(config).run())
        try:
            await asyncio.wait((election, ended), return_when=asyncio.FIRST_COMPLETED)
            if election.done():
                await election  # one that failed would leave nobody acting, and nobody be told of it
            if leaders:  # what failed while acting ends the operator; a new one starts with a clean memory
                await ended
        finally:
            acts = [task for task in leaders if task is not None]
            for task in (election, *acts):
                task.cancel()
            await asyncio.wait((election, *acts))
            await lock.release()
