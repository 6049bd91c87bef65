"""Wraps public methods of a stack for its integration."""

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, act: Callable[..., Any]) -> None:
    """Let `act(own, ...)` stand before a method, which it calls as `own`."""
    own = getattr(owner, name)

    @functools.wraps(own)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return act(own, *arguments, **named)

    setattr(owner, name, wrapped)
