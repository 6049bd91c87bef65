"""Whole numbers as Kubernetes spells them. Pure."""

import re

__all__ = ["parse_quantity"]

_SPELLED = re.compile(r"(\d{1,18})(k|M|G|Ki|Mi|Gi)?")
_TIMES = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def parse_quantity(quantity: object) -> int:
    """A count such as 8, "8" or "1k"; what is none counts as 0: anybody may write labels and Jobs."""
    found = _SPELLED.fullmatch(str(quantity))
    return int(found[1]) * _TIMES[found[2]] if found else 0
