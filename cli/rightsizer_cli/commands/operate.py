"""`rightsizer operator`."""

from typing import Annotated

import typer

__all__ = ["operator"]


def operator(
    *,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Only this namespace; repeatable. Default: all."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would be done; the API server checks it, nothing changes."),
    ] = False,
    port: Annotated[int, typer.Option(metavar="PORT", help="For /healthz, /readyz and /metrics.")] = 8080,
    lease_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where the Lease is. Default: the pod's own namespace.")
    ] = "",
    inter_node_gbps: Annotated[
        float | None,
        typer.Option(metavar="GB/S", help="Network between nodes, GB/s per GPU; default: the usual node's."),
    ] = None,
    rendezvous_image: Annotated[
        str, typer.Option(metavar="IMAGE", help="For rendezvous pods; default: the plan's own image.")
    ] = "",
    prometheus_url: Annotated[
        str, typer.Option(metavar="URL", help="Where GPU counters are; without it only workers are asked.")
    ] = "",
) -> int:
    """Run the Kubernetes operator: in a cluster with its service account, elsewhere with your kubeconfig."""
    try:
        from rightsizer_operator.main import Options, run  # noqa: PLC0415  (kopf is slow to import)
    except ModuleNotFoundError as error:
        from rightsizer.errors import InputError  # noqa: PLC0415

        remedy = "is missing: pip install 'rightsizer[operator]'"
        raise InputError("operator", value=error.name, remedy=remedy) from None
    from rightsizer_operator.settings import Settings  # noqa: PLC0415
    from rightsizer_telemetry.client import Access  # noqa: PLC0415

    settings = Settings(inter_node_gbps=inter_node_gbps, rendezvous_image=rendezvous_image, dry_run=dry_run)
    options = Options(
        namespaces=tuple(namespace or ()),
        port=port,
        lease_namespace=lease_namespace,
        prometheus=Access(url=prometheus_url) if prometheus_url else None,
        settings=settings,
    )
    return run(options)
