"""Measurements of running plans, collected for the resize policy."""

__all__: list[str] = []
