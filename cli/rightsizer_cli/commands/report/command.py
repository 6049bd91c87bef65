"""`rightsizer report`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.options import Json

__all__ = ["report"]


def report(
    *,
    prometheus: Annotated[
        str,
        typer.Option(metavar="URL", envvar="RIGHTSIZER_PROMETHEUS", help="Prometheus with our rules."),
    ],
    window: Annotated[str, typer.Option(metavar="DURATION", help="How far to look back: 24h, 7d.")] = "24h",
    price: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Of a GPU-hour; default: the dated list price."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write one HTML page with plots; - for stdout.")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="For each question.")] = "30s",
    ca_file: Annotated[Path | None, typer.Option(metavar="PEM", help="The server's authority.")] = None,
    cert_file: Annotated[Path | None, typer.Option(metavar="PEM", help="Your certificate.")] = None,
    key_file: Annotated[Path | None, typer.Option(metavar="PEM", help="Its key, if elsewhere.")] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A bearer token.")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="For basic authentication.")] = None,
    password_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Its password.")] = None,
    as_json: Json = False,
) -> int:
    """Who holds how many GPUs, how busy they are, and what the idle ones cost: plans and everything else."""
    from rightsizer.units import parse_duration_s
    from rightsizer_cli.commands.report.usage import Asked, run
    from rightsizer_telemetry.client import PrometheusSettings

    access = PrometheusSettings(
        url=prometheus,
        timeout_s=parse_duration_s(timeout),
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        token_file=token_file,
        user=user,
        password_file=password_file,
    )
    return run(access, Asked(window=window, price=price, html=html, as_json=as_json))
