"""`rightsizer version`."""

import typer

__all__ = ["version"]


def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed_version  # noqa: PLC0415  (slow, and rarely asked)

    typer.echo(f"rightsizer {installed_version('rightsizer')}")
