"""Figures as files: whole or not at all, and the same on every day."""

import importlib
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rightsizer_cli.requests.files import write_whole
from rightsizer_cli.requests.usage_errors import OptionError

_KINDS = {".svg": "svg", ".png": "png", ".pdf": "pdf"}
_NO_DATES: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def check_plot(path: Path, *, find: Callable[[str], Any] = importlib.import_module) -> None:
    """Refuse what could not be drawn before anything is computed; `find` imports by name."""
    if path.suffix.lower() not in _KINDS:
        raise OptionError("--plot", value=str(path), remedy="must end in .svg, .png or .pdf")
    quiet_matplotlib()
    try:
        find("matplotlib")
    except ImportError:
        remedy = "needs matplotlib: pip install 'rightsizer[plot]'"
        raise OptionError("--plot", value=str(path), remedy=remedy) from None


def save_figure(drawn: Callable[[], Any], path: Path) -> None:
    """Write the drawing of `drawn` in the format of the path's ending; whole or not at all."""
    file = picture(drawn, _KINDS[path.suffix.lower()])
    write_whole(path, lambda draft: draft.write_bytes(file), field="--plot")


def quiet_matplotlib() -> None:
    """Keep matplotlib from telling on stderr that it cannot keep its caches in the user's folder."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def picture(drawn: Callable[[], Any], kind: str) -> bytes:
    """The drawing of `drawn` as an SVG, PNG or PDF file."""
    import matplotlib as mpl

    file = io.BytesIO()
    # text stays text in SVG, and nothing in the file depends on the day
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rightsizer", "font.size": 10}):
        drawn().savefig(file, format=kind, dpi=150, metadata=_NO_DATES.get(kind))
    return file.getvalue()
