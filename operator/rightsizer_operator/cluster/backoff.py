"""Exponential back-off, the same for plans, lists, Events and scrapes. Pure but for its jitter."""

import random
from collections.abc import Callable

from rightsizer_engine.values import immutable

_MOST_DOUBLINGS = 60  # of a wait that is cut to the longest one anyway


@immutable
class Backoff:
    """Waits of `first_s`, twice that and so on, `longest_s` at most, each shortened by up to `jitter`."""

    first_s: float
    longest_s: float
    jitter: float = 0.0

    def wait_s(
        self,
        failures: int,
        *,
        at_least_s: float | None = None,
        uniform: Callable[[], float] = random.random,
    ) -> float:
        """Seconds to wait after so many failures in a row; `at_least_s` is the server's request."""
        doublings = min(max(failures, 1) - 1, _MOST_DOUBLINGS)
        wait_s = min(self.longest_s, self.first_s * 2.0**doublings)
        return max(at_least_s or 0.0, wait_s * (1.0 - self.jitter * uniform()))
