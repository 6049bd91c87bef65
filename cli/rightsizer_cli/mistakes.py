"""Mistakes on the command line."""

from rightsizer.errors import InputError

__all__ = ["OptionError"]


class OptionError(InputError):
    """A wrong or missing option; the message leaves out a value that was not given."""

    def __str__(self) -> str:
        return super().__str__() if self.value not in (None, "") else f"{self.field}: {self.remedy}"
