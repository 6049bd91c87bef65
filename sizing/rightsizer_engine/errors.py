"""Users' errors and their text: the fault, the value, the remedy.

RightsizerError (ValueError)
|-- InputError            a field of a plan, a command or a file
|   |-- QuantityError     a human quantity that does not parse
|   `-- UnknownNameError  a name that no catalog holds; carries the candidates
`-- UnsupportedError      a valid input that the engine cannot model; never silently approximated
"""

from collections.abc import Sequence


class RightsizerError(ValueError):
    """Root of every error a user can cause."""


class InputError(RightsizerError):
    """A wrong input: the field (dotted path), the value as given, and the remedy."""

    def __init__(self, field: str, *, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field}: {value!r}: {remedy}")


class QuantityError(InputError):
    """A human quantity ("100B", "72h", "80GiB") that does not parse."""


class UnknownNameError(InputError):
    """A name that is unknown or ambiguous; `candidates` are the nearest known ones."""

    def __init__(self, field: str, *, value: str, candidates: Sequence[str], remedy: str = "") -> None:
        self.candidates = tuple(candidates)
        listed = ", ".join(self.candidates)
        super().__init__(field, value=value, remedy=remedy or f"unknown; did you mean: {listed}?")


class UnsupportedError(RightsizerError):
    """A case that the engine does not model, with the reason."""
