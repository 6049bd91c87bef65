"""`rightsizer doctor`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rightsizer_cli.commands.options import Json
from rightsizer_cli.output.exits import OK, SYSTEM

if TYPE_CHECKING:
    from rightsizer_cli.commands.doctor.findings import Finding
    from rightsizer_cli.kubectl_client import Where

_WHERE = ("machine", "kubernetes", "slurm")


def doctor(
    *,
    where: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[machine|kubernetes|slurm]", help="What to check; default: all that is here."
        ),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Kubernetes: the plans' namespace.")
    ] = "",
    context: Annotated[str, typer.Option(metavar="NAME", help="Context of your kubeconfig.")] = "",
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="Default: as kubectl finds it.")] = "",
    json: Json = False,
) -> int:
    """Check what plans need here, on Kubernetes or on Slurm, with a remedy for each gap. Read-only."""
    import dataclasses

    from rightsizer_cli.commands.doctor.findings import Status
    from rightsizer_cli.kubectl_client import Where as Cluster
    from rightsizer_cli.output.console import echo_json

    places = _places(where or [])
    cluster = Cluster(namespace=namespace, context=context, kubeconfig=kubeconfig)
    found: list[Finding] = []
    for finding in _findings(places, cluster):
        found.append(finding)
        if not json:
            typer.echo(finding.line)
    lacking = sum(finding.status is Status.MISSING for finding in found)
    if json:
        echo_json([dataclasses.asdict(finding) for finding in found])
    else:
        typer.echo(f"{lacking} missing" if lacking else "nothing is missing")
    return SYSTEM if lacking else OK


def _places(where: Iterable[str]) -> tuple[str, ...]:
    """The places named, or this machine and what has its tools on the PATH."""
    import shutil

    from rightsizer_cli.requests.usage_errors import OptionError

    for name in where:
        if name not in _WHERE:
            raise OptionError("WHERE", value=name, remedy=f"write {', '.join(_WHERE)}")
    tools = {"kubernetes": "kubectl", "slurm": "sinfo"}
    here = tuple(name for name in _WHERE if name not in tools or shutil.which(tools[name]))
    return tuple(where) or here


def _findings(places: Iterable[str], cluster: "Where") -> "Iterator[Finding]":
    from rightsizer_cli.commands.doctor import kubernetes, machine
    from rightsizer_cli.kubectl_client import Client

    for place in places:
        if place == "machine":
            yield from machine.findings(machine.look(Path()))
        elif place == "kubernetes":
            yield from kubernetes.findings(Client.of(cluster))
        else:
            yield from _slurm()


def _slurm() -> "Iterator[Finding]":
    """The findings of `rightsizer slurm install --check`."""
    from rightsizer_cli.commands.doctor.findings import Finding, Status
    from rightsizer_slurm.install_check import check

    for found in check():
        remedy = f"add to {found.file}: {' | '.join(found.lines)}" if found.lines else ""
        yield Finding(
            status=Status(found.status.value),
            subject="Slurm",
            text=found.text.removeprefix("Slurm: "),
            remedy=remedy,
        )
