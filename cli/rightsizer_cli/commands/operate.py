"""`rightsizer operator`."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from rightsizer_engine.resize.types import Mode

_T = TypeVar("_T", bound=str)


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
    log_format: Annotated[
        str, typer.Option(metavar="FORMAT", help="text, or json: one object a record, with the plan's name.")
    ] = "text",
    lease_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where the Lease is. Default: the pod's own namespace.")
    ] = "",
    inter_node_gbps: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Network between nodes per GPU: 400Gbps, 50GB/s; default: usual."),
    ] = None,
    rendezvous_image: Annotated[
        str, typer.Option(metavar="IMAGE", help="For rendezvous pods; default: the plan's own image.")
    ] = "",
    device_class: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="DeviceClass of which pods claim GPUs; default: they request nvidia.com/gpu."
        ),
    ] = "",
    prometheus_url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Where GPU counters are; then nothing is resized while it is silent."
        ),
    ] = "",
    prometheus_ca_file: Annotated[
        Path | None, typer.Option(metavar="PEM", help="That Prometheus's authority.")
    ] = None,
    prometheus_token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Bearer token for it.")
    ] = None,
    network_policy: Annotated[
        bool, typer.Option(help="Give each plan's pods network policies; only its workers reach its store.")
    ] = True,
    metrics_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON",
            help="A NetworkPolicyPeer that may read workers' metrics; repeatable. Default: all.",
        ),
    ] = None,
    cap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAMESPACE=]MODE", help="The most done to plans: Off, Recommend, Auto; repeatable."
        ),
    ] = None,
    give_back: Annotated[
        str, typer.Option(metavar="WHEN", help="GPUs that are not needed: OnPressure or Always.")
    ] = "OnPressure",
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two readings of the workers.")
    ] = "15s",
    judge_every: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between judgements of a plan's size.")
    ] = "1m",
    window: Annotated[str, typer.Option(metavar="DURATION", help="The shortest window to judge by.")] = "10m",
    warm_up: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a size trains before it is judged.")
    ] = "5m",
    cool_down: Annotated[
        str, typer.Option(metavar="DURATION", help="At most one resize of a plan in it.")
    ] = "1h",
    look: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Training before a plan's first look. Default: what it states."
        ),
    ] = None,
    restart: Annotated[
        str, typer.Option(metavar="DURATION", help="Expected time of a restart until one is measured.")
    ] = "10m",
    resize_within: Annotated[
        str, typer.Option(metavar="DURATION", help="A resize that takes longer has failed.")
    ] = "10m",
) -> int:
    """Run the Kubernetes operator: in a cluster with its service account, elsewhere with your kubeconfig."""
    try:
        from rightsizer_operator.runtime.logs import FORMATS
        from rightsizer_operator.runtime.main import OperatorOptions, run
    except ModuleNotFoundError as error:
        from rightsizer_engine.errors import InputError

        remedy = "is missing: pip install 'rightsizer[operator]'"
        raise InputError("operator", value=error.name, remedy=remedy) from None
    from rightsizer_engine.resize.types import Pressure
    from rightsizer_engine.units import parse_duration_s
    from rightsizer_operator.values.settings import OperatorSettings
    from rightsizer_telemetry.client import PrometheusSettings

    settings = OperatorSettings(
        inter_node_gbps=_gbps(inter_node_gbps),
        rendezvous_image=rendezvous_image,
        device_class=_object_name(device_class, field="--device-class"),
        dry_run=dry_run,
        measure_s=parse_duration_s(every, field="--every"),
        decide_s=parse_duration_s(judge_every, field="--judge-every"),
        window_s=parse_duration_s(window, field="--window"),
        warm_up_s=parse_duration_s(warm_up, field="--warm-up"),
        cool_down_s=parse_duration_s(cool_down, field="--cool-down"),
        look_s=parse_duration_s(look, field="--look") if look else None,
        restart_s=parse_duration_s(restart, field="--restart"),
        resize_s=parse_duration_s(resize_within, field="--resize-within"),
        give_back=_one_of(give_back, list(Pressure), field="--give-back"),
        caps=_caps(cap or []),
        network_policy=network_policy,
        metrics_from=tuple(_peer(text) for text in metrics_from or ()),
    )
    access = PrometheusSettings(
        url=prometheus_url, ca_file=prometheus_ca_file, token_file=prometheus_token_file
    )
    options = OperatorOptions(
        namespaces=tuple(namespace or ()),
        port=port,
        log_format=_one_of(log_format, FORMATS, field="--log-format"),
        lease_namespace=lease_namespace,
        prometheus=access if prometheus_url else None,
        settings=settings,
    )
    return run(options)


def _peer(text: str) -> dict[str, Any]:
    """A NetworkPolicyPeer from its JSON."""
    from rightsizer_engine.errors import InputError

    known = {"podSelector", "namespaceSelector", "ipBlock"}
    try:
        peer = json.loads(text)
    except ValueError:
        peer = None
    if not isinstance(peer, dict) or not peer or not peer.keys() <= known:
        remedy = 'must be a NetworkPolicyPeer as JSON, such as {"namespaceSelector": {}}'
        raise InputError("--metrics-from", value=text, remedy=remedy)
    return peer


def _object_name(text: str, *, field: str) -> str:
    """The name of an API object, or nothing: it becomes a part of a path."""
    from rightsizer_engine.errors import InputError

    if text and not re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", text):
        raise InputError(field, value=text, remedy="must be a DeviceClass, such as gpu.nvidia.com")
    return text


def _caps(stated: Sequence[str]) -> "dict[str, Mode]":
    """The caps by namespace; one without a namespace is for all others."""
    from rightsizer_engine.resize.types import Mode

    pairs = (each.rpartition("=")[::2] for each in stated)
    return {name: _one_of(mode, list(Mode), field="--cap") for name, mode in pairs}


def _one_of(text: str, known: Sequence[_T], *, field: str) -> _T:
    from rightsizer_engine.errors import InputError

    for each in known:
        if each == text:
            return each
    raise InputError(field, value=text, remedy=f"must be one of {', '.join(known)}")


def _gbps(rate: str | None) -> float | None:
    from rightsizer_engine.units import parse_network_bytes_per_s

    return None if rate is None else parse_network_bytes_per_s(rate, field="--inter-node-gbps") / 1e9
