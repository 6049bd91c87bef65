"""Human quantities: one strict parser and one formatter for each, shared by plans, commands and comments.

The `*_PATTERN` strings are what the parsers accept as text, in the common part of Python's, ECMA's and RE2's
syntax, so that a schema can refuse the same texts. A parser accepts nothing negative, zero, infinite, or
without a unit where the unit is not evident, and raises nothing but QuantityError.
"""

import math
import re
from decimal import Decimal

from rightsizer_engine.errors import QuantityError

_NUMBER = r"[0-9]{1,15}(\.[0-9]{1,9})?"

TOKENS_PATTERN = rf"^{_NUMBER}(e\+?[0-9]{{1,2}}|[kKmMbBtT])?$"
"""Tokens as text: 100B, 1.5T, 4M, 300k, 1e9, 5000000."""

_SLURM_DURATION = r"([0-9]{1,5}-[0-9]{1,2}(:[0-9]{2}){0,2}|[0-9]{1,5}:[0-9]{2}:[0-9]{2})"
DURATION_PATTERN = (
    "^(" + "".join(rf"([0-9]{{1,9}}(\.[0-9]{{1,6}})?{unit})?" for unit in "wdhms") + rf"|{_SLURM_DURATION})$"
)
"""Durations as text: 72h, 3d, 90m, 45s, 2w, 1h30m; largest unit first, each at most once. Slurm's with days
or seconds too: 3-00:00:00, 2-0, 72:00:00. Its other forms (90, 90:00) do not show their unit."""

_BYTES_PATTERN = rf"^{_NUMBER}(B|[kKMGTP]B|[KMGTP]iB?)$"
"""Bytes as text: 80GiB, 80Gi, 80GB, 512MiB. A bare G is refused: Slurm and Kubernetes disagree about it."""

USD_PATTERN = r"^\$?([0-9]{1,12}|[0-9]{1,3}(,[0-9]{3}){1,3})(\.[0-9]{1,4})?[kKM]?$"
"""US dollars as text: 60000, $8,500, 60k, 1.2M."""

NIC_GBIT_PER_S = {
    "FDR": 56, "EDR": 100, "HDR100": 100, "HDR": 200, "NDR200": 200, "NDR": 400, "XDR": 800,
    "Slingshot-10": 100, "Slingshot-11": 200, "RoCE-100": 100, "RoCE-200": 200, "RoCE-400": 400,
    "25GbE": 25, "100GbE": 100, "200GbE": 200, "400GbE": 400, "800GbE": 800,
}  # fmt: skip
"""Network cards by name, in Gbit/s (links.csv)."""

_NIC = "|".join(sorted({spelling for name in NIC_GBIT_PER_S for spelling in (name, name.lower())}))
RATE_PATTERN = rf"^({_NUMBER}([MGT][Bb](/s|ps))?|([1-9][0-9]?x ?)?({_NIC}))$"
"""Network rates as text: 400Gbps and 400Gb/s are bits, 50GB/s and 50GBps bytes; a bare 50 is GB/s; NDR200 is
one such card for each GPU, "4x NDR200" four for each node."""

_TOKEN_UNITS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DOLLARS = {"k": 10**3, "M": 10**6}
_PREFIXES = "KMGTP"
_BYTES = (
    {"B": 1, "kB": 1000}
    | {f"{p}B": 1000 ** (i + 1) for i, p in enumerate(_PREFIXES)}
    | {f"{p}iB": 1024 ** (i + 1) for i, p in enumerate(_PREFIXES)}
    | {f"{p}i": 1024 ** (i + 1) for i, p in enumerate(_PREFIXES)}
)

_LONGEST = 40  # characters; no quantity needs more
_MOST_TOKENS = 10**18
MOST_SECONDS = 100 * 366 * 86_400
"""A century: the longest duration that is read."""
_MOST_BYTES = 10**21
_MOST_USD = 10**12

LINK_PATTERN = rf"^({_NUMBER}([MGT][Bb](/s|ps))?|PCIe[3-6] x(16|8|4))$"
"""Rates inside a node as text: as network rates, or PCIe4 x8."""

PCIE_BYTES_PER_S = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}
"""PCIe x16 by generation, per direction (links.csv; stas00/ml-engineering, network/README.md)."""

_MOST_LINK_BYTES_PER_S = 3600 * 10**9
"""Twice NVLink 6 (Rubin)."""

_LINK_REMEDY = (
    "write the rate between two GPUs of a node as 450GB/s, 16 (GB/s) or PCIe4 x8, per direction and at most"
    " 3600GB/s"
)

_MOST_NETWORK_BYTES_PER_S = 200 * 10**9
"""Twice the fastest network card of one GPU (800 Gbit/s in 2025)."""

_RATE_REMEDY = (
    "write the rate of one GPU's network as 400Gbps, 50GB/s or 50 (GB/s), at most 200GB/s, its card as"
    " NDR200, or a node's cards as 4x NDR200; divide a node's rate by its GPUs"
)
_TOKENS_REMEDY = "write tokens as 100B, 1.5T, 4M, 300k, 1e9 or a whole number"
_DURATION_REMEDY = (
    "write a duration as 72h, 3d, 90m, 45s, 2w, 1h30m (units w d h m s, largest first) or 3-00:00:00"
)
_BYTES_REMEDY = "write bytes as 80GiB, 512MiB, 80GB or a whole number of bytes"
_USD_REMEDY = "write US dollars as 60000, 8500.50, $8,500, 60k or 1.2M"


def parse_tokens(value: object, *, field: str = "tokens") -> float:
    """A count of tokens, from text or a number."""
    if isinstance(value, str):
        text = _matched(value, TOKENS_PATTERN, field=field, remedy=_TOKENS_REMEDY)
        scale = _TOKEN_UNITS.get(text[-1].lower())
        amount = Decimal(text) if scale is None else Decimal(text[:-1]) * scale
    else:
        amount = _number(value, field=field, remedy=_TOKENS_REMEDY)
    return _bounded(amount, value, field=field, least=1, most=_MOST_TOKENS, remedy=_TOKENS_REMEDY)


def parse_duration_s(value: object, *, field: str = "duration") -> float:
    """Seconds of a duration. A bare number is refused: its unit is anyone's guess."""
    if not isinstance(value, str):
        raise QuantityError(field, value=_shown(value), remedy=f"has no unit; {_DURATION_REMEDY}")
    if re.fullmatch(r"[0-9.]{1,20}", value):
        raise QuantityError(field, value=value, remedy=f"has no unit; {_DURATION_REMEDY}")
    text = _matched(value, DURATION_PATTERN, field=field, remedy=_DURATION_REMEDY)
    parts = re.findall(r"([0-9.]+)([wdhms])", text) or _slurm_parts(text)
    amount = sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal(0))
    return _bounded(
        amount, value, field=field, least=Decimal("1e-6"), most=MOST_SECONDS, remedy=_DURATION_REMEDY
    )


def _slurm_parts(text: str) -> list[tuple[str, str]]:
    """Numbers and units of days-hours[:minutes[:seconds]] or hours:minutes:seconds."""
    days, _, clock = text.rpartition("-")
    return [(days or "0", "d"), *zip(clock.split(":"), "hms", strict=False)]


def parse_bytes(value: object, *, field: str = "bytes") -> float:
    """Bytes, from text with a unit (GiB = 2**30, GB = 10**9) or a plain number of bytes."""
    if isinstance(value, str):
        text = _matched(value, _BYTES_PATTERN, field=field, remedy=_BYTES_REMEDY)
        number = re.match(r"[0-9.]+", text)
        digits = number.group() if number else ""
        amount = Decimal(digits) * _BYTES[text[len(digits) :]]
    else:
        amount = _number(value, field=field, remedy=_BYTES_REMEDY)
    return _bounded(amount, value, field=field, least=1, most=_MOST_BYTES, remedy=_BYTES_REMEDY)


def parse_network_bytes_per_s(
    value: object, *, field: str = "network", gpus_per_node: int | None = None
) -> float:
    """Bytes/s between nodes, of one GPU and direction; a plain number is GB/s. No faster network exists.

    A node's cards ("4x NDR200") are divided by its GPUs; as many as cards where nobody says how many.
    """
    card = re.fullmatch(rf"(?:([1-9][0-9]?)x ?)?({_NIC})", value) if isinstance(value, str) else None
    if card:
        canonical = {name.lower(): rate for name, rate in NIC_GBIT_PER_S.items()}
        count = int(card.group(1) or 1)
        share = Decimal(count) / (gpus_per_node or count) if card.group(1) else Decimal(1)
        amount = Decimal(canonical[card.group(2).lower()]) * 10**9 / 8 * share
    else:
        amount = _rate(value, RATE_PATTERN, field=field, remedy=_RATE_REMEDY)
    most = _MOST_NETWORK_BYTES_PER_S
    return _bounded(amount, value, field=field, least=10**6, most=most, remedy=_RATE_REMEDY)


def parse_link_bytes_per_s(value: object, *, field: str = "link") -> float:
    """Bytes/s between the GPUs of a node, at line rate, of one GPU and direction; a plain number is GB/s."""
    lanes = re.fullmatch(r"PCIe([3-6]) x(16|8|4)", value) if isinstance(value, str) else None
    if lanes:
        return PCIE_BYTES_PER_S[int(lanes.group(1))] * int(lanes.group(2)) / 16
    amount = _rate(value, LINK_PATTERN, field=field, remedy=_LINK_REMEDY)
    most = _MOST_LINK_BYTES_PER_S
    return _bounded(amount, value, field=field, least=10**8, most=most, remedy=_LINK_REMEDY)


def _rate(value: object, pattern: str, *, field: str, remedy: str) -> Decimal:
    """Bytes/s of a text such as 400Gbps or 50GB/s, or of a number of GB/s."""
    if not isinstance(value, str):
        return _number(value, field=field, remedy=remedy) * 10**9
    text = _matched(value, pattern, field=field, remedy=remedy)
    digits, unit = re.fullmatch(r"([0-9.]+)(.*)", text).groups()  # type: ignore[union-attr]
    scale = {"M": 10**6, "T": 10**12}.get(unit[:1], 10**9)
    return Decimal(digits) * scale / (8 if unit[1:2] == "b" else 1)


def parse_usd(value: object, *, field: str = "usd") -> float:
    """US dollars, from text or a number."""
    if isinstance(value, str):
        text = _matched(value, USD_PATTERN, field=field, remedy=_USD_REMEDY)
        scale = _DOLLARS.get(text[-1].replace("K", "k"), 1)
        amount = Decimal(text.strip("$kKM").replace(",", "")) * scale
    else:
        amount = _number(value, field=field, remedy=_USD_REMEDY)
    return _bounded(amount, value, field=field, least=Decimal("0.01"), most=_MOST_USD, remedy=_USD_REMEDY)


def format_count(value: float) -> str:
    """A count to four digits with a decimal suffix: 8.03B, 405B, 4.194M, 512."""
    return _special(value) or _suffixed(value, ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")))


def format_tokens(value: float) -> str:
    """Tokens to four digits: 100B, 15.6T, 4.194M; `parse_tokens` reads it."""
    return format_count(value)


def format_bytes(value: float) -> str:
    """Bytes to four digits in binary units: 80GiB, 512MiB; `parse_bytes` reads it."""
    units = tuple((float(1024 ** (i + 1)), f"{_PREFIXES[i]}iB") for i in reversed(range(len(_PREFIXES))))
    return _special(value) or _suffixed(value, (*units, (1.0, "B")))


def format_duration(value: float) -> str:
    """Seconds as at most two units: 5d3h, 61h12m, 4m20s, 12.5s, 0.042s; `parse_duration_s` reads it."""
    if special := _special(value):
        return special
    if value < 0:
        return "-" + format_duration(-value)
    if round(value, 1) < 60:
        return f"{_plain(value, 4 if value < 1 else 3)}s"
    for limit, big, small in ((3_600, "m", "s"), (72 * 3_600, "h", "m"), (math.inf, "d", "h")):
        whole, rest = divmod(round(value / _SECONDS[small]), _SECONDS[big] // _SECONDS[small])
        if whole * _SECONDS[big] < limit:
            return f"{whole}{big}" + (f"{rest}{small}" if rest else "")
    raise AssertionError("unreachable: the last limit is infinite")


def format_usd(value: float) -> str:
    """US dollars: $8,500, or with cents below $100."""
    if special := _special(value):
        return special
    sign = "-" if value < 0 else ""
    amount = abs(value)
    return f"{sign}${amount:,.2f}" if amount < 100 else f"{sign}${amount:,.0f}"


def _matched(value: str, pattern: str, *, field: str, remedy: str) -> str:
    if not value or len(value) > _LONGEST or not re.fullmatch(pattern.strip("^$"), value):
        raise QuantityError(field, value=_shown(value), remedy=remedy)
    return value


def _number(value: object, *, field: str, remedy: str) -> Decimal:
    """A plain int or float as a Decimal; booleans are no numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(field, value=_shown(value), remedy=remedy)
    if isinstance(value, float) and not math.isfinite(value):
        raise QuantityError(field, value=value, remedy=remedy)
    return Decimal(value)


def _bounded(
    amount: Decimal, value: object, *, field: str, least: Decimal | int, most: int, remedy: str
) -> float:
    if amount < least:
        raise QuantityError(field, value=_shown(value), remedy=f"must be more than zero; {remedy}")
    if amount > most:
        raise QuantityError(field, value=_shown(value), remedy=f"is absurdly large; {remedy}")
    return float(amount)


def _shown(value: object) -> object:
    """The value for a message: itself, or shortened (a number of 5,000 digits cannot even be printed)."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[:_LONGEST] + "..."
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 10**_LONGEST else "a very long number"
    return f"a {type(value).__name__}"


def _special(value: float) -> str:
    """The word for what has no digits; empty for finite numbers."""
    if math.isnan(value):
        return "unknown"
    return "unbounded" if math.isinf(value) else ""


def _suffixed(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """Four digits with the largest unit of which there is at least one after rounding."""
    for scale, suffix in units:
        if float(f"{abs(value) / scale:.4g}") >= 1:
            return f"{_plain(value / scale, 4)}{suffix}"
    return _plain(value, 4) + ("B" if units[-1][1] == "B" else "")


def _plain(value: float, digits: int) -> str:
    """`digits` significant digits, never in exponent form, without trailing zeros."""
    text = f"{Decimal(f'{value:.{digits}g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
