"""The commands of `kubectl rightsizer`. Slow imports are local."""

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rightsizer_cli.commands.options import grouped
from rightsizer_cli.output.exits import INTERRUPTED, NO_PLAN, OK
from rightsizer_cli.requests.flags import ClusterFlags
from rightsizer_operator.kubectl.client import Client

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Plans of all namespaces.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return without waiting for the change.")]
Timeout = Annotated[str, typer.Option(metavar="DURATION", help="Maximum time to wait for the change.")]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="A manifest that is not applied yet, instead of NAME."),
]


@grouped
def plan(*, name: Name = "", file: File = None, json: Json = False, where: ClusterFlags) -> int:
    """Size a live plan or a manifest on this cluster's GPUs, without changing anything."""
    from rightsizer_cli.output.plan_output import print_result
    from rightsizer_engine.search.types import Plan
    from rightsizer_operator.kubectl.plans import size_on_cluster

    result = size_on_cluster(Client.of(where), name=name, file=file)
    print_result(result, as_json=json)
    return OK if isinstance(result, Plan) else NO_PLAN


@grouped
def explain(*, name: Name = "", file: File = None, json: Json = False, where: ClusterFlags) -> int:
    """Explain a plan's size on this cluster: binding limit, rejected options, source of every figure."""
    from rightsizer_cli.output.explanation import print_explanation
    from rightsizer_engine.search.types import Plan
    from rightsizer_operator.kubectl.plans import size_on_cluster

    result = size_on_cluster(Client.of(where), name=name, file=file)
    print_explanation(result, as_json=json)
    return OK if isinstance(result, Plan) else NO_PLAN


@grouped
def probe(
    *,
    name: Name = "",
    file: File = None,
    time_limit: Annotated[
        str, typer.Option("--time", metavar="DURATION", help="Longest time of training.")
    ] = "5m",
    gpus: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="GPUs to measure on; default: the fewest that tell."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the probe's TrainingPlan only.")] = False,
    where: ClusterFlags,
) -> int:
    """Run a plan's script on few GPUs for minutes as a TrainingPlan of its own, and size the plan by it."""
    import secrets

    from rightsizer_engine.units import parse_duration_s
    from rightsizer_launch.running.probe_run import ProbeOptions, run_probe
    from rightsizer_operator.kubectl.plans import named_plan
    from rightsizer_operator.kubectl.probe import KubernetesProbe

    options = ProbeOptions(
        limit_s=parse_duration_s(time_limit, field="--time"),
        gpus=gpus,
        dry_run=dry_run,
        tag=f"-{secrets.token_hex(2)}",
    )
    plan = named_plan(Client.of(where), name=name, file=file)[0]
    client = Client.of(replace(where, namespace=where.namespace or plan.metadata.namespace or ""))
    executor = KubernetesProbe(client=client, say=typer.echo)
    return OK if run_probe(plan, options, executor=lambda: executor, say=typer.echo) else INTERRUPTED


@grouped
def why(*, name: Name, where: ClusterFlags) -> int:
    """Explain a plan's state: the cause, the deadline, the pace and the next step."""
    from rightsizer_cli.output.plan_state import why as explain_state

    client = Client.of(where)
    plan = client.plan(name)
    for line in explain_state(plan, client.events(plan), dt.datetime.now(dt.UTC)):
        typer.echo(line)
    return OK


@grouped
def status(
    *,
    name: Name = "",
    all_namespaces: AllNamespaces = False,
    json: Json = False,
    where: ClusterFlags,
) -> int:
    """Show plans and whether they are on time; for one plan also its conditions and resizes."""
    from rightsizer_cli.output.console import echo_json, show

    client = Client.of(where)
    plans = [client.plan(name)] if name else list(client.plans(everywhere=all_namespaces))
    if json:
        echo_json([{"metadata": _names(plan), "status": plan.get("status", {})} for plan in plans])
        return OK
    from rightsizer_cli.output.plan_tables import detail_page, plans_table

    if not plans:
        typer.echo("no TrainingPlans", err=True)
    elif name:
        show(*detail_page(plans[0]))
    else:
        show(plans_table(plans, namespaces=all_namespaces))
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
    where: ClusterFlags,
) -> int:
    """Change a live plan's GPUs or its limits, and wait until it trains on them."""
    from rightsizer_cli.kubectl.wait import resized
    from rightsizer_engine.errors import InputError

    options = {"gpus": gpus, "minGPUs": min_gpus, "maxGPUs": max_gpus}
    given = {key: value for key, value in options.items() if value is not None}
    if not given:
        raise InputError("--gpus", value="", remedy="give --gpus, or the limits --min-gpus and --max-gpus")
    client = Client.of(where)
    if list(given) == ["gpus"]:
        client.scale(name, given["gpus"])
    else:
        client.patch(name, {"resources": given})
    return _waited(client, name, resized(gpus), timeout=timeout, no_wait=no_wait)


@grouped
def suspend(*, name: Name, no_wait: NoWait = False, timeout: Timeout = "10m", where: ClusterFlags) -> int:
    """Checkpoint and stop a plan; this frees its GPUs."""
    from rightsizer_cli.kubectl.wait import suspended

    client = Client.of(where)
    client.patch(name, {"suspend": True})
    return _waited(client, name, suspended, timeout=timeout, no_wait=no_wait)


@grouped
def resume(*, name: Name, no_wait: NoWait = False, timeout: Timeout = "10m", where: ClusterFlags) -> int:
    """Resume a suspended plan from its checkpoint."""
    from rightsizer_cli.kubectl.wait import resumed

    client = Client.of(where)
    client.patch(name, {"suspend": False})
    return _waited(client, name, resumed, timeout=timeout, no_wait=no_wait)


COMMANDS: tuple[Callable[..., Any], ...] = (plan, explain, probe, why, status, resize, suspend, resume)


def _waited(
    client: Client, name: str, done: Callable[..., int | None], *, timeout: str, no_wait: bool
) -> int:
    """Wait for the change; each new state prints a line to stderr."""
    from rightsizer_cli.kubectl.wait import Wait
    from rightsizer_engine.units import parse_duration_s

    if no_wait:
        return OK
    began_s = time.monotonic()

    def report(line: str) -> None:
        typer.echo(f"{time.monotonic() - began_s:5.0f} s  {line}", err=True)

    timeout_s = parse_duration_s(timeout)
    return Wait(read_plan=lambda: client.plan(name), report=report, timeout_s=timeout_s).until(done)


def _names(plan: Any) -> dict[str, str]:
    return {key: plan["metadata"][key] for key in ("namespace", "name")}
