"""Mistakes on the command line."""

from rightsizer_engine.errors import InputError


class OptionError(InputError):
    """A wrong or missing option."""


def format_error(error: ValueError) -> str:
    """An error in one line, without an empty value."""
    text = str(error)
    if isinstance(error, InputError) and error.value in (None, ""):
        text = f"{error.field}: {error.remedy}"
    return " ".join(text.split())
