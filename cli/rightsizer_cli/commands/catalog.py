"""`rightsizer models` and `rightsizer gpus`."""

from typing import Annotated

import typer

from rightsizer_cli.options import Json

__all__ = ["gpus", "models"]


def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One model; by default all.")] = None,
    *,
    json: Json = False,
) -> None:
    """List the models of the catalog, or show one."""
    from rightsizer import catalog  # noqa: PLC0415  (numpy is slow to import)
    from rightsizer_cli.listing import print_models  # noqa: PLC0415

    print_models(catalog.models() if name is None else (catalog.model(name),), as_json=json)


def gpus(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One GPU type; by default all.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the GPU types of the catalog, or show one."""
    from rightsizer import catalog  # noqa: PLC0415  (numpy is slow to import)
    from rightsizer_cli.listing import print_gpus  # noqa: PLC0415

    print_gpus(catalog.gpus() if name is None else (catalog.gpu(name),), as_json=json)
