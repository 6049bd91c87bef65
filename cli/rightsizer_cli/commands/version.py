"""`rightsizer version`."""

import typer


def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed_version

    typer.echo(f"rightsizer {installed_version('rightsizer')}")
