"""`rightsizer doctor`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rightsizer_cli.commands.options import Json, grouped
from rightsizer_cli.output.exits import OK, SYSTEM
from rightsizer_cli.requests.flags import ClusterFlags

if TYPE_CHECKING:
    from rightsizer_launch.findings import Finding

_PLACES = ("machine", "kubernetes", "slurm")


@grouped
def doctor(
    *,
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[machine|kubernetes|slurm]", help="What to check; default: all that is here."
        ),
    ] = None,
    where: ClusterFlags,
    json: Json = False,
) -> int:
    """Check what plans need here, on Kubernetes or on Slurm, with a remedy for each gap. Read-only."""
    import dataclasses

    from rightsizer_cli.output.console import echo_json
    from rightsizer_launch.findings import FindingStatus

    found: list[Finding] = []
    for finding in _findings(_checked(places or []), where):
        found.append(finding)
        if not json:
            typer.echo(finding.line)
    lacking = sum(finding.status is FindingStatus.MISSING for finding in found)
    if json:
        echo_json([dataclasses.asdict(finding) for finding in found])
    else:
        typer.echo(f"{lacking} missing" if lacking else "nothing is missing")
    return SYSTEM if lacking else OK


def _checked(places: Iterable[str]) -> tuple[str, ...]:
    """The places named, or this machine and what has its tools on the PATH."""
    import shutil

    from rightsizer_cli.requests.usage_errors import OptionError

    for name in places:
        if name not in _PLACES:
            raise OptionError("WHERE", value=name, remedy=f"write {', '.join(_PLACES)}")
    tools = {"kubernetes": "kubectl", "slurm": "sinfo"}
    here = tuple(name for name in _PLACES if name not in tools or shutil.which(tools[name]))
    return tuple(places) or here


def _findings(places: Iterable[str], where: ClusterFlags) -> "Iterator[Finding]":
    """Each executor's own checks."""
    from rightsizer_local import checks as machine
    from rightsizer_operator.kubectl import checks as kubernetes
    from rightsizer_operator.kubectl.client import Client
    from rightsizer_slurm import install_check as slurm

    for place in places:
        if place == "machine":
            yield from machine.findings(machine.look(Path()))
        elif place == "kubernetes":
            yield from kubernetes.findings(Client.of(where), say=lambda line: typer.echo(line, err=True))
        else:
            yield from slurm.findings()
