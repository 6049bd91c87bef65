"""Stacks whose scripts run unmodified: one file adapts each, `catalog` lists them."""

__all__: list[str] = []
