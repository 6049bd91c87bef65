"""Exit codes beyond those of `rightsizer` itself."""

FAILED = 1
"""The plan is over: it failed, or was complete before the change."""
TIMED_OUT = 4
"""The change was requested but had not taken effect at the timeout."""
