"""`rightsizer report`."""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer_cli.commands.options import Json


def report(
    *,
    prometheus: Annotated[
        str,
        typer.Option(
            metavar="URL", envvar="RIGHTSIZER_PROMETHEUS", help="Default: found among the cluster's services."
        ),
    ] = "",
    context: Annotated[str, typer.Option(metavar="NAME", help="Context of your kubeconfig.")] = "",
    tenant: Annotated[str, typer.Option(metavar="ID", help="X-Scope-OrgID, for Mimir.")] = "",
    window: Annotated[str, typer.Option(metavar="DURATION", help="Length of the period: 24h, 7d.")] = "24h",
    price: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Price of a GPU-hour; default: the dated list price."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write one HTML page with plots; - for stdout.")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="Timeout of each query.")] = "30s",
    ca_file: Annotated[Path | None, typer.Option(metavar="PEM", help="CA certificate of the server.")] = None,
    cert_file: Annotated[Path | None, typer.Option(metavar="PEM", help="Client certificate.")] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Client key, if in another file.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File with a bearer token.")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="User for basic authentication.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the password.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show the GPUs that each owner holds, how busy they are, and the cost of idle ones."""
    from rightsizer_cli.output.usage import print_usage
    from rightsizer_engine.units import parse_duration_s, parse_usd
    from rightsizer_telemetry.client import Prometheus, PrometheusSettings
    from rightsizer_telemetry.discovery import discovered
    from rightsizer_telemetry.usage import collect

    access = PrometheusSettings(
        url=prometheus,
        timeout_s=parse_duration_s(timeout),
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        token_file=token_file,
        user=user,
        password_file=password_file,
        tenant=tenant,
    )
    price_usd = None if price is None else parse_usd(price)
    window_s = parse_duration_s(window, field="--window")
    found = discovered(access, context, say=lambda line: typer.echo(line, err=True))
    with Prometheus(access) if prometheus else found as client:
        usage = collect(client, window_s=window_s, price_usd_per_gpu_h=price_usd)
    return print_usage(usage, html=html, as_json=as_json)
