"""Awaits several things at the same time."""

import asyncio
from collections.abc import Awaitable


async def all_of(*awaitables: Awaitable[None]) -> None:
    """Wait for all of them, also if one fails; then raise the error of the first one that did."""
    if len(awaitables) == 1:
        await awaitables[0]
        return
    for result in await asyncio.gather(*awaitables, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
