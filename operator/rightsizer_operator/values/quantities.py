"""Kubernetes quantities as counts and amounts. Pure.

`kubernetes.utils` has a parser, but `kubectl rightsizer plan` uses this package without the operator's extra.
"""

import re

_COUNT = re.compile(r"(\d{1,18})(k|M|G|Ki|Mi|Gi)?")
_FACTORS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?\d{1,2}))?")
_SUFFIXES = {
    "": 1.0,
    **{suffix: 10.0 ** (3 * power) for power, suffix in enumerate("num kMGTPE", start=-3)},
    **{f"{suffix}i": 2.0 ** (10 * power) for power, suffix in enumerate("KMGTPE", start=1)},
}


def parse_quantity(quantity: object) -> int:
    """A count such as 8, "8" or "1k". An invalid one counts as 0: tenants write labels and Jobs."""
    match = _COUNT.fullmatch(str(quantity))
    return int(match[1]) * _FACTORS[match[2]] if match else 0


def parse_amount(quantity: object) -> float:
    """Cores or bytes, such as "250m", 0.5, "64Gi" or "1e9". An invalid one counts as 0."""
    match = _AMOUNT.fullmatch(str(quantity))
    if match is None:
        return 0.0
    number, suffix, exponent = match.groups()
    return float(number) * _SUFFIXES[suffix or ""] * 10.0 ** int(exponent or 0)
