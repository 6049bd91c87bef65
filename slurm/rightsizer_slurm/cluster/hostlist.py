"""Slurm's host lists: n[1-4,7],m[09-10] -> what `scontrol show hostnames` prints. Pure and bounded."""

import re
from collections.abc import Iterator
from itertools import chain, islice, product

from rightsizer_engine.errors import RightsizerError

MOST_HOSTS = 65_536
"""As many as Slurm takes in one range (MAX_RANGE); here in the whole list."""
_MOST_CHARACTERS = 2**20
_MOST_BRACKETS = 5  # of one name: Slurm's HIGHEST_DIMENSIONS
_LONGEST_NAME = 255  # of DNS
_ENTRY = re.compile(r"(?:[^\[\], \t\n]|\[[^\[\]]*\])+")
_RANGES = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class HostListError(RightsizerError):
    """A text that is no host list, or a list of too many hosts."""


def expand(text: str) -> tuple[str, ...]:
    """Each host once, in the list's order. HostListError also where Slurm guesses: `n[1-`, `n[+1]`."""
    if len(text) > _MOST_CHARACTERS or not set("[]").isdisjoint(_ENTRY.sub("", text)):
        raise HostListError(f"{text[:80]}: no list of hosts")
    entries = (_names(match.group()) for match in _ENTRY.finditer(text))
    names = list(islice(chain.from_iterable(entries), MOST_HOSTS + 1))
    if len(names) > MOST_HOSTS:
        raise HostListError(f"{text[:80]}: over {MOST_HOSTS} hosts")
    return tuple(dict.fromkeys(names))


def _names(entry: str) -> Iterator[str]:
    """The hosts of prefix[1-4]infix[5,6]; nothing follows the last bracket."""
    pieces = _RANGES.split(entry)  # text, ranges, text, ranges, ..., text
    texts, ranges = pieces[::2], pieces[1::2]
    if len(ranges) > _MOST_BRACKETS or (ranges and texts[-1]) or len("".join(texts)) > _LONGEST_NAME:
        raise HostListError(f"{entry[:80]}: no name of hosts")
    for numbers in product(*(list(islice(_numbers(each), MOST_HOSTS + 1)) for each in ranges)):
        yield "".join(chain.from_iterable(zip(texts, (*numbers, ""), strict=True)))


def _numbers(ranges: str) -> Iterator[str]:
    """1-4,7 as texts; each has at least as many digits as the first of its range."""
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not match or not first <= last < first + MOST_HOSTS:
            raise HostListError(f"[{ranges[:80]}]: no list of ranges")
        yield from (f"{number:0{len(match[1])}}" for number in range(first, last + 1))
