"""HTTP of the operator itself: /healthz, /readyz and /metrics."""

import contextlib
import time
from collections.abc import AsyncIterator

from aiohttp import web

from rightsizer_operator.cluster.metrics import Metrics
from rightsizer_operator.runtime.controller import Controller

__all__ = ["serving"]


@contextlib.asynccontextmanager
async def serving(
    controller: Controller, metrics: Metrics, *, port: int, silent_s: float
) -> AsyncIterator[None]:
    """Serve while inside. Health fails when the acting loop has not read the cluster for `silent_s`."""

    async def healthz(_request: web.Request) -> web.Response:
        silent = time.monotonic() - controller.alive_at
        if controller.leads and silent > silent_s:
            return web.Response(status=500, text=f"nothing was read for {silent:.0f} s\n")
        return web.Response(text="ok\n")

    async def text(request: web.Request) -> web.Response:
        names = request.query.getall("name[]", [])
        return web.Response(body=metrics.text(names), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", healthz), web.get("/metrics", text)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", port)  # noqa: S104 -- probes and Prometheus come from outside the pod
    await site.start()
    try:
        yield
    finally:
        await runner.cleanup()
