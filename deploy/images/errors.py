"""What can go wrong in a build, in one line."""


class BuildError(Exception):
    """What failed, and what to do about it."""
