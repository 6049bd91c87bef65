"""The exit codes, as scripts rely on them."""

__all__ = ["BAD_INPUT", "INTERRUPTED", "NO_PLAN", "OK"]

OK = 0
"""A plan, or whatever was asked."""
BAD_INPUT = 2
"""The input is wrong; stderr says which field, the value, and the remedy."""
NO_PLAN = 3
"""The input is right and nothing meets it; stdout says what binds and what comes nearest."""
INTERRUPTED = 130
"""Ctrl-C: 128 + SIGINT, as shells report it."""
