"""The page's server: this machine only, no state but the last answers."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from rightsizer_cli.completion import frameworks, gpus, models, nodes
from rightsizer_cli.figures import picture
from rightsizer_cli.page.answer import Answer, answered
from rightsizer_cli.page.form import EXAMPLE
from rightsizer_cli.page.render import answer_html, asset, page_html
from rightsizer_cli.plan_figure import plan_figure

__all__ = ["application", "run"]

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HOST = "127.0.0.1"
"""The page reads this machine's files and answers whoever asks: nobody else may."""

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


def run(port: int, *, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `ready` gets the address. Raises OSError if the port is taken."""
    asyncio.run(_served(port, ready))


async def _served(port: int, ready: Callable[[str], None]) -> None:
    runner, ended = web.AppRunner(application(), access_log=None), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await runner.setup()
    try:
        await web.TCPSite(runner, _HOST, port).start()
        ready(f"http://{_HOST}:{runner.addresses[0][1]}/")
        await ended.wait()
    finally:
        await runner.cleanup()


def application() -> web.Application:
    """The page at /, its answer at /answer, its picture at /fan.svg."""
    app = web.Application(middlewares=[_guarded])
    one_at_a_time = asyncio.Lock()

    async def ask(query: Mapping[str, str]) -> Answer:
        """The engine and the figures run in a thread, one at a time: the server goes on answering."""
        async with one_at_a_time:
            return await asyncio.to_thread(answered, query)

    async def page(request: web.Request) -> web.Response:
        query = dict(request.query) or dict(EXAMPLE)
        return _html(page_html(query, await ask(query), _names()))

    async def answer(request: web.Request) -> web.Response:
        return _html(answer_html(await ask(dict(request.query))))

    async def fan(request: web.Request) -> web.Response:
        plan = (await ask(dict(request.query))).plan
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
    app.router.add_get("/answer", answer)
    app.router.add_get("/fan.svg", fan)
    app.router.add_get(f"/{{name:{'|'.join(map(_escaped, _ASSETS))}}}", packaged)
    return app


def _escaped(name: str) -> str:
    return name.replace(".", r"\.")


def _names() -> dict[str, list[str]]:
    """What the form suggests."""
    return {"models": models(""), "gpus": gpus(""), "nodes": nodes(""), "frameworks": frameworks("")}


def _html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")


@web.middleware
async def _guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answers only who asks for this machine by its name: another site's name may point here too."""
    name, _, port = request.host.rpartition(":")
    if (name if port.isdigit() else request.host) not in _NAMES:
        raise web.HTTPForbidden(text="this page is for this machine only")
    response = await handler(request)
    for header, value in _HEADERS.items():
        response.headers.setdefault(header, value)
    return response
