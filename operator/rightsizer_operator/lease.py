"""One replica acts: a Lease, taken over within seconds when its holder falls silent."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

__all__ = ["LEASE_S", "hold"]

_LOG = logging.getLogger("rightsizer.operator")
LEASE_S, _RENEW_S, _RETRY_S = 10, 6, 2
"""Seconds: a silent holder's lease runs out; a holder that cannot renew stops; between tries."""


class _Lock(LeaseLock):
    """A Lease whose server may be away for a while: that is a failed try, never the operator's end."""

    async def get(self, name: str, namespace: str) -> Any:
        """The record, or why there is none."""
        try:
            return await super().get(name, namespace)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return False, ApiException(status=0, reason=str(error))

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        """Whether the Lease was created."""
        try:
            return bool(await super().create(name, namespace, election_record))
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        """Whether the Lease is (still) ours."""
        try:
            return bool(await super().update(name, namespace, updated_record))
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False


async def hold(
    api: ApiClient,
    *,
    name: str,
    namespace: str,
    identity: str,
    act: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Wait for the Lease, act while it is ours, and wait again when it is lost; for ever."""
    while True:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def acting(ended: asyncio.Future[None] = ended) -> None:
            try:
                await act()
            finally:
                ended.set_result(None)

        async def stopped() -> None:
            _LOG.warning("%s lost the lease", identity)

        lock = _Lock(name, namespace, identity, api)
        config = Config(
            lock,
            lease_duration=LEASE_S,
            renew_deadline=_RENEW_S,
            retry_period=_RETRY_S,
            onstarted_leading=acting,
            onstopped_leading=stopped,
        )
        await LeaderElection(config).run()
        await ended
