"""Decisions about a running job: keep, grow, shrink, change the layout, or flag."""
