"""The commands of `kubectl rightsizer`. What is slow to import is imported where it is used."""

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rightsizer_cli.exits import NO_PLAN, OK
from rightsizer_cli.flags import grouped
from rightsizer_cli.kubectl.client import Client, Where

__all__ = ["COMMANDS"]

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Everybody's plans.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Ask for it and return.")]
Timeout = Annotated[str, typer.Option(metavar="DURATION", help="How long to wait for it.")]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="A manifest that is not applied yet, instead of NAME."),
]


@grouped
def plan(*, name: Name = "", file: File = None, json: Json = False, where: Where) -> int:
    """Size a live plan, or a manifest, on what this cluster has; changes nothing."""
    from rightsizer.search.types import Plan
    from rightsizer_cli.kubectl.size_on_cluster import answer
    from rightsizer_cli.plan_output import print_answer

    found = answer(Client.of(where), name=name, file=file)
    print_answer(found, as_json=json)
    return OK if isinstance(found, Plan) else NO_PLAN


@grouped
def explain(*, name: Name = "", file: File = None, json: Json = False, where: Where) -> int:
    """Say why a plan gets this size here: what binds, what was rejected, where every figure comes from."""
    from rightsizer.search.types import Plan
    from rightsizer_cli.commands.explain.explanation import print_explanation
    from rightsizer_cli.kubectl.size_on_cluster import answer

    found = answer(Client.of(where), name=name, file=file)
    print_explanation(found, as_json=json)
    return OK if isinstance(found, Plan) else NO_PLAN


@grouped
def why(*, name: Name, where: Where) -> int:
    """Say in words what a plan does, why, whether it is on time, and what to do next."""
    from rightsizer_cli.kubectl.describe import why as story

    client = Client.of(where)
    found = client.plan(name)
    for line in story(found, client.events(found), dt.datetime.now(dt.UTC)):
        typer.echo(line)
    return OK


@grouped
def status(
    *,
    name: Name = "",
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Everybody's plans.")
    ] = False,
    json: Json = False,
    where: Where,
) -> int:
    """Show plans and whether they are on time; of one plan its conditions and changes of size too."""
    from rightsizer_cli.console import echo_json, show

    client = Client.of(where)
    found = [client.plan(name)] if name else list(client.plans(everywhere=all_namespaces))
    if json:
        echo_json([{"metadata": _names(each), "status": each.get("status", {})} for each in found])
        return OK
    from rightsizer_cli.kubectl.tables import detail_page, plans_table

    if not found:
        typer.echo("no TrainingPlans", err=True)
    elif name:
        show(*detail_page(found[0]))
    else:
        show(plans_table(found, namespaces=all_namespaces))
    return OK


@grouped
def resize(
    *,
    name: Name,
    gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="Train on exactly N GPUs.")] = None,
    min_gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="At least N.")] = None,
    max_gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N.")] = None,
    no_wait: NoWait = False,
    timeout: Timeout = "10m",
    where: Where,
) -> int:
    """Change how many GPUs a live plan has, or may have, and wait until it trains on them."""
    from rightsizer.errors import InputError
    from rightsizer_cli.kubectl.wait import resized

    asked = {"gpus": gpus, "minGPUs": min_gpus, "maxGPUs": max_gpus}
    given = {key: value for key, value in asked.items() if value is not None}
    if not given:
        raise InputError("--gpus", value="", remedy="give --gpus, or the limits --min-gpus and --max-gpus")
    client = Client.of(where)
    if list(given) == ["gpus"]:
        client.scale(name, given["gpus"])
    else:
        client.patch(name, {"resources": given})
    return _waited(client, name, resized(gpus), timeout=timeout, no_wait=no_wait)


@grouped
def suspend(*, name: Name, no_wait: NoWait = False, timeout: Timeout = "10m", where: Where) -> int:
    """Let a plan save and stop; it keeps its checkpoint and gives its GPUs back."""
    from rightsizer_cli.kubectl.wait import suspended

    client = Client.of(where)
    client.patch(name, {"suspend": True})
    return _waited(client, name, suspended, timeout=timeout, no_wait=no_wait)


@grouped
def resume(*, name: Name, no_wait: NoWait = False, timeout: Timeout = "10m", where: Where) -> int:
    """Let a suspended plan go on from its checkpoint."""
    from rightsizer_cli.kubectl.wait import resumed

    client = Client.of(where)
    client.patch(name, {"suspend": False})
    return _waited(client, name, resumed, timeout=timeout, no_wait=no_wait)


COMMANDS: tuple[Callable[..., Any], ...] = (plan, explain, why, status, resize, suspend, resume)


def _waited(
    client: Client, name: str, done: Callable[..., int | None], *, timeout: str, no_wait: bool
) -> int:
    """Wait, with a line on stderr for each change."""
    from rightsizer.units import parse_duration_s
    from rightsizer_cli.kubectl.wait import Wait

    if no_wait:
        return OK
    began_s = time.monotonic()

    def tell(words: str) -> None:
        typer.echo(f"{time.monotonic() - began_s:5.0f} s  {words}", err=True)

    within_s = parse_duration_s(timeout)
    return Wait(look=lambda: client.plan(name), tell=tell, within_s=within_s).until(done)


def _names(found: Any) -> dict[str, str]:
    return {key: found["metadata"][key] for key in ("namespace", "name")}
