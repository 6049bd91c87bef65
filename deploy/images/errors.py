"""Errors of a build, reported in one line."""


class BuildError(Exception):
    """A step that failed, and the remedy."""
