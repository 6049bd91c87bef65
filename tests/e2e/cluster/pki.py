"""Certificates and kubeconfigs: a CA and an identity for each part, as Node and RBAC authorizers expect."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from host import run
from place import API_SERVICE_ADDRESS, CONTROL_PLANE_ADDRESS, Place, nodes

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
DAYS = "30"
API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
API_ADDRESSES = (CONTROL_PLANE_ADDRESS, "127.0.0.1", API_SERVICE_ADDRESS)
EXTENSIONS = """\
basicConstraints=CA:FALSE
keyUsage=digitalSignature,keyEncipherment
extendedKeyUsage=serverAuth,clientAuth
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of a certificate; `alternatives` only for servers."""

    file: str
    user: str
    group: str = ""
    alternatives: str = ""


def identities(at: Place) -> tuple[Identity, ...]:
    """Everybody who talks to the API server."""
    server = ",".join([*(f"IP:{a}" for a in API_ADDRESSES), *(f"DNS:{n}" for n in API_NAMES)])
    return (
        Identity(file="apiserver", user="kube-apiserver", alternatives=server),
        Identity(file="admin", user="admin", group="system:masters"),
        Identity(file="controller-manager", user="system:kube-controller-manager"),
        Identity(file="scheduler", user="system:kube-scheduler"),
        Identity(file="proxy", user="system:kube-proxy"),
        Identity(file="coredns", user="rightsizer:coredns"),
        Identity(file="kubelet-client", user="rightsizer:apiserver"),
        *(
            Identity(
                file=node.name,
                user=f"system:node:{node.name}",
                group="system:nodes",
                alternatives=f"DNS:{node.name},IP:{node.address}",
            )
            for node in nodes(at)
        ),
    )


def make(at: Place) -> None:
    """All keys and certificates, and a kubeconfig for each identity."""
    at.pki.mkdir(parents=True, mode=0o700)
    ca = ("-keyout", at.pki / "ca.key", "-out", at.pki / "ca.crt")
    run("openssl", "req", "-x509", *CURVE, *ca, "-days", DAYS, "-subj", "/CN=rightsizer-test-ca")
    run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", CURVE[3], "-out", at.pki / "sa.key")
    run("openssl", "pkey", "-in", at.pki / "sa.key", "-pubout", "-out", at.pki / "sa.pub")
    for identity in identities(at):
        _certificate(at, identity)
        write_kubeconfig(
            at, identity.file, f"https://{CONTROL_PLANE_ADDRESS}:6443", kubeconfig(at, identity.file)
        )


def kubeconfig(at: Place, identity: str) -> Path:
    """The path of the identity's kubeconfig."""
    return at.pki / f"{identity}.kubeconfig"


def _certificate(at: Place, who: Identity) -> None:
    stem = at.pki / who.file
    key, request, certificate, extensions = (stem.with_suffix(s) for s in (".key", ".csr", ".crt", ".ext"))
    subject = f"/CN={who.user}" + (f"/O={who.group}" if who.group else "")
    names = f"subjectAltName={who.alternatives}\n" if who.alternatives else ""
    extensions.write_text(EXTENSIONS + names)
    run("openssl", "req", "-new", *CURVE, "-keyout", key, "-out", request, "-subj", subject)
    signer = ("-CA", at.pki / "ca.crt", "-CAkey", at.pki / "ca.key", "-CAcreateserial")
    out = ("-out", certificate, "-days", DAYS, "-extfile", extensions)
    run("openssl", "x509", "-req", "-in", request, *signer, *out)


def write_kubeconfig(at: Place, identity: str, server: str, path: Path) -> None:
    """A kubeconfig that needs no other file; readable by its owner alone, because it holds a key."""

    def encoded(file: str) -> str:
        return base64.b64encode((at.pki / file).read_bytes()).decode()

    user = {
        "client-certificate-data": encoded(f"{identity}.crt"),
        "client-key-data": encoded(f"{identity}.key"),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": at.name,
        "clusters": [
            {"name": at.name, "cluster": {"server": server, "certificate-authority-data": encoded("ca.crt")}}
        ],
        "users": [{"name": identity, "user": user}],
        "contexts": [{"name": at.name, "context": {"cluster": at.name, "user": identity}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1))
