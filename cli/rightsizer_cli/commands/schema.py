"""`rightsizer schema`."""

from typing import Annotated

import typer


def schema(
    command: Annotated[
        str | None,
        typer.Argument(metavar="[COMMAND]", help="Such as plan or slurm-report; by default their list."),
    ] = None,
) -> None:
    """Print the JSON schema of what a command prints with --json, in this version."""
    from importlib.metadata import version as installed_version

    from rightsizer_cli.output.console import echo_json
    from rightsizer_cli.output.documents.schemas import DOCUMENTS
    from rightsizer_cli.output.documents.schemas import schema as schema_of

    if command is None:
        typer.echo("\n".join(DOCUMENTS))
        return
    echo_json({"$id": f"urn:rightsizer:{installed_version('rightsizer')}:{command}"} | schema_of(command))
