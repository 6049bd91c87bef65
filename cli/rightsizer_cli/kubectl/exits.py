"""Exit codes beyond those of `rightsizer` itself."""

__all__ = ["FAILED", "TIMED_OUT"]

FAILED = 1
"""The plan is over: it failed, or was complete before the change."""
TIMED_OUT = 4
"""It was asked for; it had not happened yet when the wait was over."""
