"""`rightsizer models`, `rightsizer gpus`, `rightsizer nodes` and `rightsizer frameworks`."""

from typing import Annotated

import typer

from rightsizer_cli.commands.options import Json


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One model, as --model takes it; by default all.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the models of the catalog, or show one."""
    from rightsizer_cli.output.catalog import print_models
    from rightsizer_cli.requests.model_files import network
    from rightsizer_engine.catalog import lookup

    print_models(lookup.models() if name is None else (network(name),), as_json=json)


def gpus(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One GPU type; by default all.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the GPU types of the catalog, or show one."""
    from rightsizer_cli.output.catalog import print_gpus
    from rightsizer_engine.catalog import lookup

    print_gpus(lookup.gpus() if name is None else (lookup.gpu(name),), as_json=json)


def nodes(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One node type; by default all.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the node types of clouds and known machines, or show one."""
    from rightsizer_cli.output.catalog import print_nodes
    from rightsizer_engine.catalog import lookup

    print_nodes(lookup.nodes() if name is None else (lookup.node(name),), as_json=json)


def frameworks(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One framework, by any of its names; by default all."),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the frameworks that a plan may name, or show what is known of one."""
    from rightsizer_cli.output.catalog import print_frameworks
    from rightsizer_engine.catalog.framework_names import framework_named
    from rightsizer_engine.domain.framework import frameworks as profiles

    known = [profile for profile in profiles() if profile.known]
    print_frameworks(known if name is None else [framework_named(name)], as_json=json)
