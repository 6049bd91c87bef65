"""Find a cluster's Prometheus by the labels of its service, and reach it through kubectl or from a pod."""

import json
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from rightsizer_api.untrusted_text import printable
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_telemetry.client import FailedQuery, Prometheus, PrometheusSettings

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SERVICES_S = 30.0

_KINDS: Sequence[tuple[str, str, Sequence[str]]] = (
    (
        "", "",
        ("app.kubernetes.io/name=vmsingle", "app.kubernetes.io/name=victoria-metrics-single"),
    ),
    (
        "/select/0/prometheus", "",
        ("app.kubernetes.io/name=vmselect", "app.kubernetes.io/component=vmselect", "app=vmselect"),
    ),
    (
        "", "",
        (
            "app.kubernetes.io/component=query,app.kubernetes.io/name=thanos",
            "app.kubernetes.io/name=thanos-query", "app=thanos-query", "app=thanos-querier",
        ),
    ),
    (
        "/prometheus", "anonymous",
        ("app.kubernetes.io/name=mimir,app.kubernetes.io/component=query-frontend",),
    ),
    (
        "", "",
        (
            "app=kube-prometheus-stack-prometheus", "app=prometheus,component=server",
            "app=prometheus-server", "app=prometheus-operator-prometheus",
            "app=rancher-monitoring-prometheus", "app=prometheus-prometheus",
            "app.kubernetes.io/name=prometheus,app.kubernetes.io/component=server",
            "app=stack-prometheus", "operated-prometheus=true",
        ),
    ),
)  # fmt: skip
"""API path, default tenant, selectors of VictoriaMetrics (single, cluster), Thanos, Mimir and Prometheus:
krr's (robusta-dev/krr, `metrics_service/`) in its order, and last the Prometheus operator's own service."""


@immutable
class PrometheusService:
    """A service that may be a Prometheus."""

    namespace: str
    name: str
    port: int
    scheme: str
    path: str
    tenant: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.port}"

    @property
    def inside(self) -> str:
        """Its address for pods."""
        return f"{self.scheme}://{self.name}.{self.namespace}.svc:{self.port}{self.path}"

    @property
    def proxied(self) -> str:
        """Its address behind the API server's proxy."""
        secure = "https:" if self.scheme == "https" else ""
        named = f"services/{secure}{self.name}:{self.port}/proxy{self.path}"
        return f"http://localhost/api/v1/namespaces/{self.namespace}/{named}"


def candidates(services: Sequence[Mapping[str, Any]]) -> tuple[PrometheusService, ...]:
    """The services that look like a Prometheus, the likeliest first, each once."""
    found: dict[tuple[str, str], PrometheusService] = {}
    for path, tenant, selectors in _KINDS:
        for selector in selectors:
            wanted = dict(pair.split("=") for pair in selector.split(","))
            for item in services:
                metadata, ports = item["metadata"], item["spec"].get("ports") or ()
                if ports and wanted.items() <= (metadata.get("labels") or {}).items():
                    service = _service(metadata, ports, path, tenant)
                    found.setdefault((service.namespace, service.name), service)
    return tuple(found.values())


def _service(
    metadata: Mapping[str, Any], ports: Sequence[Mapping[str, Any]], path: str, tenant: str
) -> PrometheusService:
    """The port for queries: one with a name like http or web, else the first."""
    web = [port for port in ports if port.get("name", "").startswith(("http", "web"))]
    port = (web or ports)[0]
    secure = "https" in {port.get("name"), port.get("appProtocol")} or port["port"] == 443
    return PrometheusService(
        namespace=metadata["namespace"],
        name=metadata["name"],
        port=port["port"],
        scheme="https" if secure else "http",
        path=path,
        tenant=tenant,
    )


@contextmanager
def discovered(
    access: PrometheusSettings,
    context: str = "",
    *,
    say: Callable[[str], None],
    account: Path = _ACCOUNT,
) -> Iterator[Prometheus]:
    """The first of the cluster's candidates that responds; `say` gets its name. InputError if none does."""
    if (host := os.environ.get("KUBERNETES_SERVICE_HOST")) and (account / "token").exists():
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        services = _listed_inside(f"https://{f'[{host}]' if ':' in host else host}:{port}", account)
        with _responding(services, access, lambda service: service.inside, None, say) as client:
            yield client
        return
    path = shutil.which("kubectl")
    if path is None:
        raise InputError(
            "--prometheus", value="", remedy="give its address: no kubectl on the PATH to find it"
        )
    kubectl = (path, *((f"--context={context}",) if context else ()))
    services = _listed(kubectl)
    with (
        _proxy(kubectl) as socket,
        _responding(services, access, lambda service: service.proxied, socket, say) as client,
    ):
        yield client


@contextmanager
def _responding(
    services: Sequence[PrometheusService],
    access: PrometheusSettings,
    address: Callable[[PrometheusService], str],
    socket: Path | None,
    say: Callable[[str], None],
) -> Iterator[Prometheus]:
    reasons = []
    for service in services:
        settings = replace(access, url=address(service), tenant=access.tenant or service.tenant)
        transport = None if socket is None else httpx.HTTPTransport(uds=str(socket))
        with Prometheus(settings, transport=transport) as client:
            response = client.instant("vector(1)")
            if not isinstance(response, FailedQuery):
                say(f"Prometheus: service {service}")
                yield client
                return
        reasons.append(f"{service}: {response.reason}")
    tried = f"none answers ({printable('; '.join(reasons))})" if reasons else "no service is labelled as one"
    raise InputError("--prometheus", value="", remedy=f"give its address: {tried} in the cluster")


def _listed(kubectl: Sequence[str]) -> tuple[PrometheusService, ...]:
    """Through the user's kubectl, in all namespaces."""
    asked = [*kubectl, "get", "services", "--all-namespaces", "--output=json", "--request-timeout=30s"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError("--prometheus", value="", remedy=f"give its address: kubectl: {printable(last)}")
    return candidates(json.loads(done.stdout)["items"])


def _listed_inside(server: str, account: Path) -> tuple[PrometheusService, ...]:
    """The services, listed with the pod's service account."""
    tls = ssl.create_default_context(cafile=account / "ca.crt")
    token = (account / "token").read_text().strip()
    try:
        response = httpx.get(
            f"{server}/api/v1/services",
            headers={"Authorization": f"Bearer {token}"},
            verify=tls,
            timeout=_SERVICES_S,
            trust_env=False,
        )
        response.raise_for_status()
    except httpx.HTTPError as error:
        remedy = f"give its address: this pod cannot list services: {printable(str(error).splitlines()[0])}"
        raise InputError("--prometheus", value="", remedy=remedy) from None
    return candidates(response.json()["items"])


@contextmanager
def _proxy(kubectl: Sequence[str]) -> Iterator[Path]:
    """`kubectl proxy` on a socket that only this user can open."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "api"
        process = subprocess.Popen(
            [*kubectl, "proxy", f"--unix-socket={socket}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if not line.startswith("Starting to serve"):
                raise InputError("--prometheus", value="", remedy=f"give its address: kubectl proxy: {line}")
            yield socket
        finally:
            process.terminate()
            process.communicate()
