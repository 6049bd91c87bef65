"""Field types for quantities, which keep their text and are checked by the engine's parsers."""

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from rightsizer_engine import units
from rightsizer_engine.errors import QuantityError

_LONGEST = 40


def _checked(parse: Callable[..., float]) -> PlainValidator:
    """Keeps the written value once `parse` accepts it; a whole float becomes an int, another one text."""

    def check(value: Any) -> Any:
        parse(value, field="")
        if isinstance(value, float):
            return int(value) if value.is_integer() else f"{Decimal(repr(value)):f}"
        return value

    return PlainValidator(check)


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": _LONGEST, "pattern": pattern}


def _number_or_text(pattern: str) -> dict[str, Any]:
    return {"x-kubernetes-int-or-string": True, "minimum": 1, "maxLength": _LONGEST, "pattern": pattern}


Tokens = Annotated[
    int | str,
    _checked(units.parse_tokens),
    WithJsonSchema(_number_or_text(units.TOKENS_PATTERN)),
]
"""Tokens, or any count written like them: 100B, 1.5T, 4M, 300k, or a whole number."""

Duration = Annotated[
    str,
    _checked(units.parse_duration_s),
    WithJsonSchema(_text(units.DURATION_PATTERN)),
]
"""A duration: 72h, 3d, 90m, 1h30m."""

Rate = Annotated[
    int | str,
    _checked(units.parse_network_bytes_per_s),
    WithJsonSchema(_number_or_text(units.RATE_PATTERN)),
]
"""A network's rate: 400Gbps, 50GB/s, a number of GB/s, or a card's name (NDR200, 4x NDR200)."""

Link = Annotated[
    int | str,
    _checked(units.parse_link_bytes_per_s),
    WithJsonSchema(_number_or_text(units.LINK_PATTERN)),
]
"""A link's rate: 450GB/s, a number of GB/s, or PCIe4 x8."""

Usd = Annotated[int | str, _checked(units.parse_usd), WithJsonSchema(_number_or_text(units.USD_PATTERN))]
"""US dollars: 60000, $8,500, 60k."""


def _interval(value: object) -> str:
    """A duration or the word auto."""
    if value != "auto":
        try:
            units.parse_duration_s(value, field="")
        except QuantityError as error:
            raise QuantityError("", value=error.value, remedy=f"write auto, or {error.remedy}") from None
    return str(value)


Interval = Annotated[
    str,
    PlainValidator(_interval),
    WithJsonSchema(_text(rf"^auto$|{units.DURATION_PATTERN}")),
]
"""A duration, or auto: the engine chooses."""

_RFC3339 = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
)
_MOMENT_REMEDY = "write a moment with its time zone, as 2026-09-30T18:00:00Z"


def _moment(value: object) -> dt.datetime:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value
    if not isinstance(value, str) or not re.fullmatch(_RFC3339, value):
        raise QuantityError("", value=str(value)[:_LONGEST], remedy=_MOMENT_REMEDY)
    found = parse_time(value.upper())
    if found is None:
        raise QuantityError("", value=value, remedy=f"is no date; {_MOMENT_REMEDY}")
    return found


def moment_text(value: dt.datetime) -> str:
    """RFC 3339 in UTC, to the second where there is no fraction."""
    return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


Moment = Annotated[
    dt.datetime,
    PlainValidator(_moment),
    PlainSerializer(moment_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": _LONGEST}),
]
"""A moment with its time zone, RFC 3339."""


def parse_time(text: object) -> dt.datetime | None:
    """A timestamp of the Kubernetes API; None for anything else: tenants write annotations and statuses."""
    try:
        time = dt.datetime.fromisoformat(text) if isinstance(text, str) else None
        in_utc = time.astimezone(dt.UTC) if time is not None and time.tzinfo is not None else None
    except (ValueError, OverflowError):  # 0001-01-01T00:00:00+23:59 is a time of no year in UTC
        return None
    return time if in_utc is not None else None


def format_time(when: dt.datetime) -> str:
    """A timestamp as the Kubernetes API writes it: UTC, to the second."""
    return moment_text(when.replace(microsecond=0))


LATEST = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
"""The last moment that RFC 3339 can write."""


def later(when: dt.datetime, seconds: float) -> dt.datetime:
    """Some seconds after a moment, LATEST at most: an estimate may be of any length."""
    return when + dt.timedelta(seconds=seconds) if seconds < (LATEST - when).total_seconds() else LATEST


Name = Annotated[str, Field(min_length=1, max_length=253)]
"""Any name, of a bounded length."""
