"""The operator's log: lines for people, or one JSON object per record, with the plan's namespace and name."""

import logging
from typing import TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from rightsizer_api.plan import KIND
from rightsizer_operator.values.metadata import log_fields

FORMATS = ("text", "json")
_QUIET = ("kopf", "httpx")  # their warnings only
_KOPF = ("settings", "k8s_skip", "k8s_ref")  # what it attaches to a record


def set_up(log_format: str) -> None:
    """Log to stderr in this format."""
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(log_format)])
    logging.captureWarnings(capture=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def log_handler(log_format: str, stream: TextIO | None = None) -> logging.Handler:
    """A handler of this format; it writes to stderr unless it gets a stream."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(_name_plan)
    if log_format == "json":
        names = {"levelname": "level", "name": "logger"}
        fields = [*names, "message"]
        reserved = [*RESERVED_ATTRS, *_KOPF]
        handler.setFormatter(
            JsonFormatter(fields, rename_fields=names, timestamp="time", reserved_attrs=reserved)
        )
    else:
        handler.setFormatter(_Text("%(asctime)s %(levelname)s %(name)s %(message)s"))
    return handler


def _name_plan(record: logging.LogRecord) -> bool:
    """Name the plan of kopf's records as in our own."""
    reference = vars(record).get("k8s_ref") or {}
    if reference.get("kind") == KIND:
        vars(record).update(log_fields((reference["namespace"], reference["name"])))
    return True


class _Text(logging.Formatter):
    """A plan's record begins with namespace/name."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the standard library's name
        """The line, the plan before the message."""
        fields = vars(record)
        if "plan" in fields:
            record.message = f"{fields['namespace']}/{fields['plan']}: {record.message}"
        return super().formatMessage(record)
