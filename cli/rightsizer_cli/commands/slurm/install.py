"""`rightsizer slurm install`."""

from typing import Annotated

import typer

__all__ = ["install"]


def install(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Print what is missing and the lines to add. Required.")
    ] = False,
) -> int:
    """Print what a Slurm site still lacks; exit code 1 if something is missing. Edits no file."""
    from rightsizer.errors import InputError
    from rightsizer_slurm.install_check import (
        Status,
    )
    from rightsizer_slurm.install_check import (
        check as look,
    )

    if not check:
        raise InputError("--check", value=None, remedy="rightsizer edits no Slurm file; add --check")
    findings = look()
    for finding in findings:
        typer.echo(finding.summary)
    missing = sum(finding.status is Status.MISSING for finding in findings)
    typer.echo(f"{missing} things are missing" if missing else "nothing is missing")
    return 1 if missing else 0
