"""The result of a check: one line, and a remedy where something is wrong."""

import enum

from rightsizer_engine.values import immutable


class FindingStatus(enum.StrEnum):
    """Present, missing, or worth knowing."""

    OK = "ok"
    MISSING = "missing"
    NOTE = "note"


@immutable
class Finding:
    """The result of one check; `remedy` is empty if there is nothing to do."""

    status: FindingStatus
    subject: str
    text: str
    remedy: str = ""

    @property
    def line(self) -> str:
        """The finding in one line."""
        return f"{self.status:8}{self.subject}: {self.text}" + (f"; {self.remedy}" if self.remedy else "")


def ok(subject: str, text: str) -> Finding:
    """Present."""
    return Finding(status=FindingStatus.OK, subject=subject, text=text)


def note(subject: str, text: str, remedy: str = "") -> Finding:
    """A finding that stops no plan but concerns its user."""
    return Finding(status=FindingStatus.NOTE, subject=subject, text=text, remedy=remedy)


def missing(subject: str, text: str, remedy: str) -> Finding:
    """A plan cannot run, or not as promised, before the remedy."""
    return Finding(status=FindingStatus.MISSING, subject=subject, text=text, remedy=remedy)
