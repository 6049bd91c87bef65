"""The exit codes, as scripts rely on them."""

OK = 0
"""Success."""
SYSTEM = 1
"""The system refused: a full disk, a folder without permission; stderr says what."""
BAD_INPUT = 2
"""The input is wrong; stderr says which field, the value, and the remedy."""
NO_PLAN = 3
"""Valid input that no plan meets; stdout names the binding limit and the nearest options."""
NO_DATA = 4
"""A valid request about which the metrics server knows nothing; stderr says what it lacks."""
INTERRUPTED = 130
"""Ctrl-C: 128 + SIGINT, as shells report it."""

PLAN_OVER = 1
"""`kubectl rightsizer`: the plan is over; it failed, or was complete before the change."""
TIMED_OUT = 4
"""`kubectl rightsizer`: the change was requested but had not taken effect at the timeout."""
