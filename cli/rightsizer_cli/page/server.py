"""The page's server: this machine only, no state but the last responses."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from rightsizer_cli.output.figures import picture
from rightsizer_cli.output.plan_figure import plan_figure
from rightsizer_cli.page.engine import Engine
from rightsizer_cli.page.form import EXAMPLE, address
from rightsizer_cli.page.render import asset, page_html, response_html
from rightsizer_cli.page.response import PageResponse
from rightsizer_cli.requests.completion import frameworks, gpus, models, nodes

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HOST = "127.0.0.1"
"""This machine only: the page reads its files, and no user signs in."""

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NAMES = ("127.0.0.1", "localhost", "[::1]")
_ASSETS = {"style.css": "text/css", "page.js": "text/javascript"}
_SOON_S = 3.0
"""A page whose plan takes longer is sent without it; its script asks for the plan."""
_LAST_WORD_S = 0.5
"""What requests get to end after Ctrl-C."""


def run(port: int, *, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `ready` gets the address. Raises OSError if the port is taken."""
    asyncio.run(_served(port, ready))


async def _served(port: int, ready: Callable[[str], None]) -> None:
    engine, ended = Engine(), asyncio.Event()
    engine.warm()
    logging.getLogger("aiohttp.server").addFilter(_is_ours)
    runner = web.AppRunner(
        application(engine), access_log=None, handler_cancellation=True, shutdown_timeout=_LAST_WORD_S
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await runner.setup()
    try:
        await web.TCPSite(runner, _HOST, port).start()
        ready(f"http://{_HOST}:{runner.addresses[0][1]}/")
        await ended.wait()
    finally:
        await runner.cleanup()
        engine.close()


def application(engine: Engine, *, soon_s: float = _SOON_S) -> web.Application:
    """Serve the page at /, its response alone at /answer, its picture at /fan.svg."""
    app = web.Application(middlewares=[_guarded])
    one_at_a_time = asyncio.Lock()

    async def page(request: web.Request) -> web.Response:
        query = dict(request.query) or dict(EXAMPLE)
        try:
            response = await asyncio.wait_for(engine.ask(query), soon_s)
        except TimeoutError:
            response = PageResponse(pending=True, address=address(query))
        return _html(page_html(query, response, _names()))

    async def response(request: web.Request) -> web.Response:
        return _html(response_html(await engine.ask(dict(request.query))))

    async def fan(request: web.Request) -> web.Response:
        plan = (await engine.ask(dict(request.query))).plan
        if plan is None:
            raise web.HTTPNotFound(text="there is no plan to draw")
        async with one_at_a_time:
            drawn = await asyncio.to_thread(picture, lambda: plan_figure(plan), "svg")
        # drawn with inline styles, which the page's own policy forbids
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return web.Response(body=drawn, content_type="image/svg+xml", headers=headers)

    async def packaged(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return web.Response(text=asset(name), content_type=_ASSETS[name])

    app.router.add_get("/", page)
    app.router.add_get("/answer", response)
    app.router.add_get("/fan.svg", fan)
    app.router.add_get(f"/{{name:{'|'.join(map(_escaped, _ASSETS))}}}", packaged)
    return app


def _escaped(name: str) -> str:
    return name.replace(".", r"\.")


def _names() -> dict[str, list[str]]:
    """The form's suggestions."""
    return {"models": models(""), "gpus": gpus(""), "nodes": nodes(""), "frameworks": frameworks("")}


def _html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")


@web.middleware
async def _guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuse requests for another host name: a name of another site may point to this machine too."""
    name, _, port = request.host.rpartition(":")
    if (name if port.isdigit() else request.host) not in _NAMES:
        raise web.HTTPForbidden(text="this page is for this machine only")
    if (
        request.headers.get("Sec-Fetch-Site") == "cross-site"
        and request.headers.get("Sec-Fetch-Mode") != "navigate"
    ):
        raise web.HTTPForbidden(text="this page is for itself only; a link to it works")
    response = await handler(request)
    for header, value in _HEADERS.items():
        response.headers.setdefault(header, value)
    return response


def _is_ours(record: logging.LogRecord) -> bool:
    """True if the log record is about this server: a malformed request is the sender's mistake."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
