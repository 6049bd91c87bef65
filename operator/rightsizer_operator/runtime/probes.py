"""The operator's HTTP server: /healthz, /readyz and /metrics."""

import contextlib
import time
from collections.abc import AsyncIterator

from aiohttp import web

from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.runtime.plan_metrics import Metrics

_NO_DEFINITION = "the CustomResourceDefinition of TrainingPlans is missing\n"


@contextlib.asynccontextmanager
async def serving(
    controller: Controller, metrics: Metrics, *, port: int, max_relist_age_s: float
) -> AsyncIterator[None]:
    """Serve while inside. /healthz fails if the leader's last relist is older than `max_relist_age_s`.

    /readyz also fails while the plans' CustomResourceDefinition is missing: a restart would not help.
    An API server that does not answer leaves it as it is.
    """

    async def healthz(_request: web.Request) -> web.Response:
        age_s = time.monotonic() - controller.last_relist_s
        if controller.is_leader and age_s > max_relist_age_s:
            return web.Response(status=500, text=f"the last relist was {age_s:.0f} s ago\n")
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        with contextlib.suppress(ApiError):
            if not await controller.serves_plans():
                return web.Response(status=503, text=_NO_DEFINITION)
        return await healthz(request)

    async def metrics_text(request: web.Request) -> web.Response:
        names = request.query.getall("name[]", [])
        return web.Response(body=metrics.render(names), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics_text)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", port)  # noqa: S104 -- probes and Prometheus come from outside the pod
    await site.start()
    try:
        yield
    finally:
        await runner.cleanup()
