"""`rightsizer serve`."""

import errno
import importlib
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rightsizer_cli.output.figures import quiet_matplotlib
from rightsizer_cli.requests.usage_errors import OptionError

_NO_SUCH_PORT = (errno.EACCES, errno.EADDRINUSE)
_NEEDED = ("aiohttp", "matplotlib")


def serve(
    *,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port on this machine; 0: any that is free.")
    ] = 8600,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Also open the page in the browser.")
    ] = True,
) -> None:
    """Show a page on this machine to try models, deadlines and GPUs."""
    check_needed()
    from rightsizer_cli.page.server import run

    try:
        run(port, ready=lambda address: _ready(address, browser=browser))
    except OSError as error:
        if error.errno not in _NO_SUCH_PORT:
            raise
        raise OptionError(
            "--port", value=port, remedy=f"cannot be opened: {os.strerror(error.errno)}"
        ) from None


def check_needed(*, find: Callable[[str], Any] = importlib.import_module) -> None:
    """Refuse to start without what the page needs; `find` imports by name."""
    quiet_matplotlib()
    for name in _NEEDED:
        try:
            find(name)
        except ImportError:
            raise OptionError(
                "serve", value="", remedy=f"needs {name}: pip install 'rightsizer[page]'"
            ) from None


def _ready(address: str, *, browser: bool) -> None:
    typer.echo(f"{address}  (Ctrl-C ends it)")
    if browser:
        import webbrowser

        webbrowser.open(address)
