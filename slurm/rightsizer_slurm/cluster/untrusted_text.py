"""Untrusted text for a log or a terminal."""

_LONGEST = 300


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Any text as one bounded line of printable ASCII, which cannot forge log lines or control terminals."""
    head = text[: longest * 4]
    line = " ".join("".join(c if " " < c <= "~" else " " for c in head).split())
    return line if len(line) <= longest else line[: longest - 3] + "..."
