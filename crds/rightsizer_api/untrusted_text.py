"""Text from workers, tenants and other programs on its way to a terminal, a status or a log."""

import unicodedata
from typing import Any

__all__ = ["printable", "printable_strings"]

_REMOVED = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Control, format (such as right-to-left override), surrogate, private and unassigned; line separators."""


def printable(text: str, *, most_characters: int = 4000) -> str:
    """The text without control sequences, bounded; new lines stay.

    An escape sequence could move the cursor, forge a line or write to the clipboard (OSC 52).
    """
    head = text[:most_characters].replace("\t", " ")
    kept = "".join(c if c == "\n" or unicodedata.category(c) not in _REMOVED else "?" for c in head)
    return kept if len(text) <= most_characters else kept + "..."


def printable_strings(value: Any) -> Any:
    """Plain JSON data with every string, keys included, made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): printable_strings(item) for key, item in value.items()}
    if isinstance(value, list):
        return [printable_strings(item) for item in value]
    return value
