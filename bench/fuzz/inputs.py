"""Random inputs as a tenant could write them: texts, documents, and a fuzz target's form."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

NUMBERS = (
    "NaN",
    "+Inf",
    "-Inf",
    "-1",
    "0",
    "1",
    "7",
    "1e300",
    "1e-300",
    "9" * 30,
    "1_0",
    "0x1p3",
    "\u0661",
    "",
)
TEXTS = (
    *NUMBERS, "true", "null", "x", "demo", "demo-a1", "a" * 300, "\x1b[2J", "\x00", "\ud7ff\u202e",
    "{}", "[]", "2026-01-01", "2026-13-01T00:00:00Z", "9999-99-99T99:99:99Z", "0001-01-01T00:00:00+23:59",
    "8", "1Ki", "8m",
)  # fmt: skip
CHARACTERS = "abz019_-.:,;=+*/#%&|<>()[]{}\"'\\ \t\n\r\x00\x1b\u00e9\u202e"
WRONG = (
    None,
    True,
    -1,
    0,
    1.5,
    2**63,
    "",
    "x",
    [],
    ["x"],
    [None],
    [[]],
    {},
    {"x": 1},
    {"name": None},
    {"": {}},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parser and its inputs. `parse` may raise the project's own errors and nothing else."""

    name: str
    generate: Callable[[Random], Any]
    parse: Callable[[Any], object]


def text(random: Random, *, most: int = 60) -> str:
    """A known troublesome text, or random characters."""
    if random.random() < 0.5:
        return random.choice(TEXTS)
    return "".join(random.choices(CHARACTERS, k=random.randrange(most)))


def damaged_text(random: Random, sound: str) -> str:
    """A valid text with pieces cut out, doubled or replaced."""
    for _ in range(random.randrange(4)):
        start, length = random.randrange(len(sound) + 1), random.randrange(20)
        piece = random.choice(("", text(random), sound[start : start + length] * 2))
        sound = sound[:start] + piece + sound[start + length :]
    return sound


def damaged(random: Random, sound: Any, *, typed: bool) -> Any:
    """A copy of a document with some values changed.

    `typed`: the API server has a schema for it, so values keep their types and items of lists stay.
    """
    holder = {"": copy.deepcopy(sound)}
    for _ in range(1 + random.randrange(4)):
        parent, key = random.choice(list(_places(holder)))
        old = parent[key]
        if not typed:
            parent[key] = random.choice((copy.deepcopy(random.choice(WRONG)), text(random)))
        elif isinstance(old, str):
            parent[key] = text(random)
        elif isinstance(old, int | float) and not isinstance(old, bool):
            parent[key] = type(old)(random.choice((-1, 0, 1, 7, 2**31 - 1, 2**63 - 1)))
        elif isinstance(old, bool):
            parent[key] = not old
    return holder[""]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (parent, key) of a document."""
    found: list[tuple[Any, Any]] = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        found += [(value, key), *_places(item)]
    return found
