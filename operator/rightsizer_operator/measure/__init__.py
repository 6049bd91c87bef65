"""Measurements of running plans, collected for the resize policy."""
