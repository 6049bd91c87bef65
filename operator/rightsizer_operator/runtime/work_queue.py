"""Whose turn it is: every plan once however often it is named, and never in two hands at a time."""

import asyncio
from collections.abc import Callable
from typing import Any

from rightsizer_operator.values.snapshot import Key

__all__ = ["WorkQueue"]

_OTHERS_EVERY = 4  # while people wait, one turn in so many is everybody else's


class WorkQueue:
    """Two lanes: what people have just asked for goes before news of what runs already, which still moves.

    A burst of new plans is thus launched before the status of those launched is polished; `waiting` is told
    how many wait.
    """

    def __init__(self, waiting: Callable[[float], Any]) -> None:
        self._waiting = waiting
        self._asked: dict[Key, None] = {}
        self._others: dict[Key, None] = {}
        self._there = asyncio.Semaphore(0)
        self._busy: set[Key] = set()
        self._again: dict[Key, bool] = {}
        self._taken = 0

    def push(self, key: Key, *, asked: bool) -> None:
        """Let a plan have a turn soon; one that is being looked at has another after this one."""
        if key in self._busy:
            self._again[key] = asked or self._again.get(key, False)
            return
        known = key in self._asked or key in self._others
        if asked:
            self._others.pop(key, None)
            self._asked.setdefault(key)
        elif key not in self._asked:
            self._others.setdefault(key)
        if not known:
            self._there.release()
        self._tell()

    async def take(self) -> Key:
        """The next plan, which is then in the caller's hands until `done`."""
        await self._there.acquire()
        self._taken += 1
        theirs = self._others and (not self._asked or self._taken % _OTHERS_EVERY == 0)
        lane = self._others if theirs else self._asked
        key = next(iter(lane))
        del lane[key]
        self._busy.add(key)
        self._tell()
        return key

    def done(self, key: Key) -> None:
        """The plan is out of the caller's hands."""
        self._busy.discard(key)
        asked = self._again.pop(key, None)
        if asked is not None:
            self.push(key, asked=asked)

    def clear(self) -> None:
        """Nobody waits any more, and nobody holds one."""
        for kept in (self._asked, self._others, self._busy, self._again):
            kept.clear()
        self._there = asyncio.Semaphore(0)
        self._tell()

    def _tell(self) -> None:
        self._waiting(len(self._asked) + len(self._others))
