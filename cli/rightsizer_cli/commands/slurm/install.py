"""`rightsizer slurm install`."""

from typing import Annotated

import typer

__all__ = ["install"]


def install(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Say what is missing and the lines to add. There is no other way.")
    ] = False,
) -> int:
    """Tell an admin what a Slurm site still lacks; 1 if something is missing. No file is ever edited."""
    from rightsizer.errors import InputError
    from rightsizer_slurm.install_check import (
        Status,
    )
    from rightsizer_slurm.install_check import (
        check as look,
    )

    if not check:
        raise InputError("--check", value=None, remedy="rightsizer edits no file of Slurm's; add --check")
    findings = look()
    for finding in findings:
        typer.echo(finding.words)
    missing = sum(finding.status is Status.MISSING for finding in findings)
    typer.echo(f"{missing} things are missing" if missing else "nothing is missing")
    return 1 if missing else 0
