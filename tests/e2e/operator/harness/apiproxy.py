"""A proxy of the real API server that records an operator's requests and injects faults."""

import asyncio
import contextlib
import random
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

CUT = "cut"
_HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "content-encoding"}


@dataclass(kw_only=True)
class RecordedRequest:
    """A request and its response; `status` 0: no response (yet)."""

    method: str
    path: str
    watch: bool
    dry: bool = False
    at: float = field(default_factory=time.time)
    status: int = 0

    @property
    def writes(self) -> bool:
        """True if the request writes, leases apart."""
        return self.method != "GET" and "/leases" not in self.path

    @property
    def what(self) -> str:
        """A description without names: PATCH trainingplans/status."""
        parts = self.path.split("/")
        kind = parts.index("namespaces") + 2 if "namespaces" in parts else len(parts) - 1
        return " ".join((self.method, "/".join((parts[kind], *parts[kind + 2 :]))))


class FaultProxy:
    """Serves one operator on a loopback port, in its own thread.

    `before(request)` may answer in the API server's place: with a response, or with CUT (never). None
    forwards the request. `after(request)` is called when the API server has answered; CUT drops the response.
    While `mute` is set, watches stay open without events.
    """

    def __init__(self, server: str, trust: ssl.SSLContext, token: str) -> None:
        self.before: Callable[[RecordedRequest], web.Response | str | None] = lambda _seen: None
        self.after: Callable[[RecordedRequest], str | None] = lambda _seen: None
        self.mute = False
        self.log: list[RecordedRequest] = []
        self._server, self._trust, self._token = server, trust, token
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._ready.wait()

    @property
    def url(self) -> str:
        """The address on which it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def writes(self) -> list[RecordedRequest]:
        """All writes, in order of arrival."""
        return [seen for seen in self.log if seen.writes]

    def close(self) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._port = runner.addresses[0][1]
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()
        await asyncio.sleep(0.1)  # transports close in the loop's next rounds

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = RecordedRequest(method=request.method, path=request.path, watch="watch" in request.query)
        seen.dry = request.query.get("dryRun") == "All"
        self.log.append(seen)
        own = await asyncio.to_thread(self.before, seen)
        if isinstance(own, web.Response):
            seen.status = own.status
            return own
        if own == CUT:
            return self._cut(request)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        headers["Authorization"] = f"Bearer {self._token}"
        body = await request.read()
        url = self._server + request.raw_path
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body or None
            ) as answer:
                if seen.watch:
                    seen.status = answer.status
                    return await self._stream(request, answer)
                text = await answer.read()
        except aiohttp.ClientError:
            return self._cut(request)
        seen.status = answer.status
        if await asyncio.to_thread(self.after, seen) == CUT:
            return self._cut(request)
        return web.Response(status=answer.status, body=text, headers=_kept(answer))

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        stream = web.StreamResponse(status=answer.status, headers=_kept(answer))
        await stream.prepare(request)
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            async for chunk in answer.content.iter_any():
                while self.mute:  # the connection stays; nobody is told anything
                    await asyncio.sleep(0.1)
                await stream.write(chunk)
        return stream

    @staticmethod
    def _cut(request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


def _kept(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}


def storm(share: float, status: int, *, writes_only: bool = False, retry_after_s: int = 0, seed: int = 0):
    """A `before` that refuses a share of the requests, as an API server under pressure does."""
    dice = random.Random(seed)  # noqa: S311 -- no secret
    reasons = {409: "Conflict", 429: "TooManyRequests", 503: "ServiceUnavailable"}

    def before(seen: RecordedRequest) -> web.Response | None:
        if (writes_only and not seen.writes) or "/leases" in seen.path or dice.random() >= share:
            return None
        headers = {"Retry-After": str(retry_after_s)} if retry_after_s else {}
        refusal = {"kind": "Status", "code": status, "reason": reasons[status], "message": "a storm"}
        return web.json_response(refusal, status=status, headers=headers)

    return before
