"""etcd, API server, controllers, scheduler, DNS and the relay, each with only the rights that it needs."""

import sys
from collections.abc import Mapping
from pathlib import Path

import daemons
import kubectl
import pki
from daemons import Daemon
from host import wait
from place import (
    CONTROL_PLANE_ADDRESS,
    SERVICE_ADDRESSES,
    Place,
)

ADDONS = Path(__file__).resolve().parent / "addons.yaml"
AUDIT_POLICY = Path(__file__).resolve().parent / "audit.yaml"
RELAY = Path(__file__).resolve().parent / "relay.py"
VOLUMES = Path(__file__).resolve().parent / "volumes.py"
START_S = 60
ETCD = "http://127.0.0.1:2379"
CONTROLLER = (
    "--kube-api-qps=500",
    "--kube-api-burst=1000",
    "--leader-elect=false",
    "--bind-address=127.0.0.1",
)
COREFILE = """\
.:53 {{
  bind {address}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 1
  }}
}}
"""


def start_api_server(at: Place, binaries: Mapping[str, Path]) -> None:
    """The first half: it will answer some seconds later."""
    relay: list[str | Path] = [sys.executable, RELAY, at.control_plane, CONTROL_PLANE_ADDRESS, at.port_file]
    _start(at, "relay", relay, inside=False)
    _start(at, "etcd", _etcd(at, binaries["etcd"]))
    _start(at, "apiserver", _api_server(at, binaries["kube-apiserver"]))


def start_controllers(at: Place, binaries: Mapping[str, Path]) -> None:
    """Start the second half, once the API server responds through the relay."""
    corefile = at.state / "Corefile"
    corefile.write_text(
        COREFILE.format(address=CONTROL_PLANE_ADDRESS, kubeconfig=pki.kubeconfig(at, "coredns"))
    )
    wait("the relay's port", at.port_file.exists, within_s=START_S, look_at=at.log / "relay.log")
    pki.write_kubeconfig(at, "admin", f"https://127.0.0.1:{at.port_file.read_text()}", at.kubeconfig)
    look_at = at.log / "apiserver.log"
    wait("the API server", lambda: kubectl.ready(at), within_s=START_S, look_at=look_at)
    _start(at, "controller-manager", _controller_manager(at, binaries["kube-controller-manager"]))
    _start(at, "scheduler", _scheduler(at, binaries["kube-scheduler"]))
    _start(at, "coredns", [binaries["coredns"], "-conf", corefile])
    kubectl.run(at, "create", "--validate=false", "--filename", ADDONS)
    _start(at, "volumes", [sys.executable, VOLUMES], inside=False)


def _start(at: Place, name: str, argv: list[str | Path], *, inside: bool = True) -> None:
    namespace = at.control_plane if inside else None
    group = f"{at.cgroup}/control-plane"
    daemons.start(at, Daemon(name=name, argv=tuple(map(str, argv)), cgroup=group, namespace=namespace))


def _etcd(at: Place, binary: Path) -> list[str | Path]:
    peers = "http://127.0.0.1:2380"
    return [
        binary,
        f"--data-dir={at.state / 'etcd'}",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={peers}",
        "--unsafe-no-fsync",  # the cluster's life is shorter than the machine's
    ]


def _api_server(at: Place, binary: Path) -> list[str | Path]:
    return [
        binary,
        f"--etcd-servers={ETCD}",
        f"--advertise-address={CONTROL_PLANE_ADDRESS}",
        "--bind-address=0.0.0.0",
        "--secure-port=6443",
        f"--tls-cert-file={at.pki}/apiserver.crt",
        f"--tls-private-key-file={at.pki}/apiserver.key",
        f"--client-ca-file={at.pki}/ca.crt",
        f"--service-account-key-file={at.pki}/sa.pub",
        f"--service-account-signing-key-file={at.pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        # the second as on OpenShift: blockOwnerDeletion needs the right to set the owner's finalizers
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        "--anonymous-auth=false",
        f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={at.pki}/kubelet-client.crt",
        f"--kubelet-client-key={at.pki}/kubelet-client.key",
        f"--kubelet-certificate-authority={at.pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        # webhooks by pod address: the control plane has no kube-proxy
        "--enable-aggregator-routing=true",
        f"--requestheader-client-ca-file={at.pki}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--audit-policy-file={AUDIT_POLICY}",
        f"--audit-log-path={at.log / 'audit.jsonl'}",
    ]


def _controller_manager(at: Place, binary: Path) -> list[str | Path]:
    return [
        binary,
        f"--kubeconfig={pki.kubeconfig(at, 'controller-manager')}",
        f"--service-account-private-key-file={at.pki}/sa.key",
        f"--root-ca-file={at.pki}/ca.crt",
        f"--cluster-signing-cert-file={at.pki}/ca.crt",
        f"--cluster-signing-key-file={at.pki}/ca.key",
        "--use-service-account-credentials=true",
        "--concurrent-job-syncs=20",
        f"--node-monitor-grace-period={at.node_grace_s}s",
        "--node-monitor-period=2s",
        *CONTROLLER,
    ]


def _scheduler(at: Place, binary: Path) -> list[str | Path]:
    return [binary, f"--kubeconfig={pki.kubeconfig(at, 'scheduler')}", *CONTROLLER]
