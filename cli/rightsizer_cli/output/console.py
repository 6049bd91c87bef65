"""The console: coloured and as wide as the terminal, or plain and 100 columns wide in a pipe."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

if TYPE_CHECKING:
    from pydantic import BaseModel

_PIPED_COLUMNS = 100
_WHOLE_COLUMNS = 1000


def show(*parts: RenderableType, whole: bool = False) -> None:
    """Print parts with an empty line between them; a pipe gets no colour and no padding.

    Sentences keep to one line in a pipe, for scripts; a terminal wraps them between words. `whole` tables
    keep their width, so that no name in them is cut or folded.
    """
    screen = Console(highlight=False, emoji=False, width=_WHOLE_COLUMNS if whole else None)
    if screen.is_terminal:
        _print(screen, parts, wrap=True)
        return
    pipe = Console(
        highlight=False, emoji=False, width=_WHOLE_COLUMNS if whole else _PIPED_COLUMNS, color_system=None
    )
    with pipe.capture() as captured:
        _print(pipe, parts, wrap=False)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def echo_json(value: "BaseModel | Mapping[str, object] | Sequence[Mapping[str, object]]") -> None:
    """A document as indented JSON on stdout; its schema is in docs/schemas."""
    plain = value if isinstance(value, Mapping | Sequence) else value.model_dump(mode="json", by_alias=True)
    typer.echo(json.dumps(plain, indent=2, allow_nan=False))


def _print(screen: Console, parts: tuple[RenderableType, ...], *, wrap: bool) -> None:
    for i, part in enumerate(parts):
        if i:
            screen.print()
        screen.print(part, soft_wrap=not wrap and _is_text(part))


def _is_text(part: RenderableType) -> bool:
    return isinstance(part, str | Text) or (isinstance(part, Group) and all(map(_is_text, part.renderables)))
