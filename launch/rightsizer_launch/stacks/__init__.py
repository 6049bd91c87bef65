"""Stacks whose scripts run unmodified: one file adapts each, `catalog` lists them."""
