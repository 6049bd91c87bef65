"""Kubernetes quantities as counts. Pure.

`kubernetes.utils` has a parser, but `kubectl rightsizer plan` uses this package without the operator's extra.
"""

import re

__all__ = ["parse_quantity"]

_COUNT = re.compile(r"(\d{1,18})(k|M|G|Ki|Mi|Gi)?")
_FACTORS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def parse_quantity(quantity: object) -> int:
    """A count such as 8, "8" or "1k". An invalid one counts as 0: tenants write labels and Jobs."""
    match = _COUNT.fullmatch(str(quantity))
    return int(match[1]) * _FACTORS[match[2]] if match else 0
