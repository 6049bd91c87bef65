"""The administrator's own way to the API server: kubectl costs a process for each word."""

import base64
import http.client
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ApiClient:
    """Requests to the server of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self.server = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.trust = ssl.create_default_context(cadata=authority)
        self._context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
            for part in ("client-key-data", "client-certificate-data"):
                pem.write(base64.b64decode(user[part]))
            pem.flush()
            self._context.load_cert_chain(pem.name)
        self._lines = threading.local()  # a connection for each thread
        self._open: list[http.client.HTTPSConnection] = []
        self._paths: dict[str, str] = {}

    def __call__(self, method: str, path: str, body: Any = None, *, kind: str = "json") -> dict[str, Any]:
        """One request; 404 and 409 come back as they are, other refusals raise."""
        text = None if body is None else json.dumps(body)
        status, found = self._ask(method, path, text, {"Content-Type": f"application/{kind}"})
        if status >= 400 and status not in {404, 409}:
            raise RuntimeError(f"{method} {path}: {status} {found.get('message')}")
        return found

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch."""
        return self("PATCH", path, body, kind="merge-patch+json")

    def get(
        self, kind: str, name: str = "", *, namespace: str | None = "default", selector: str = ""
    ) -> dict[str, Any]:
        """An object, or a list of them (namespace None: of all); the kind as `kubectl get` takes it.

        RuntimeError: there is none.
        """
        inside = f"/namespaces/{namespace}" if namespace else ""
        path = "/".join(filter(None, (self._path(kind).format(inside), name)))
        found = self("GET", f"{path}?labelSelector={quote(selector)}" if selector else path)
        if found["kind"] == "Status":
            raise RuntimeError(found["message"])
        return found

    def _path(self, kind: str) -> str:
        """The path of the objects of a kind; {} stands for their namespace."""
        if kind.lower() not in self._paths:
            self._paths = self._discovered()
        if kind.lower() not in self._paths:
            raise RuntimeError(f"the server has no {kind}")
        return self._paths[kind.lower()]

    def _discovered(self) -> dict[str, str]:
        """The path of each kind by each of its names; the first group and version of a name are its own."""
        paths: dict[str, str] = {}
        for group, base, one in self._resources():
            names = {one["resource"], one["singularResource"], *one.get("shortNames", ())}
            names |= {one["responseKind"]["kind"].lower(), f"{one['resource']}.{group}"}
            within = "{}" if one["scope"] == "Namespaced" else ""
            for name in names:
                paths.setdefault(name, f"{base}{within}/{one['resource']}")
        return paths

    def _resources(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """(API group, path of its version, resource) of all that the server has, in its order."""
        for root in ("/api", "/apis"):
            _, found = self._ask("GET", root, None, {"Accept": DISCOVERY})
            for group in found["items"]:
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    base = "/".join(filter(None, (root, name, version["version"])))
                    # a server of a group that does not answer yet has none
                    yield from ((name, base, one) for one in version.get("resources", ()))

    def _ask(
        self, method: str, path: str, text: str | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """A line that was hung up meanwhile is taken anew."""
        for last in (False, False, True):
            line = getattr(self._lines, "line", None) or self._connect()
            try:
                line.request(method, path, text, dict(headers))
                answer = line.getresponse()
                body = answer.read()
                kind = answer.headers.get_content_type()
                if body and not kind.endswith("json"):  # it is starting or ending
                    return answer.status, {"kind": "Status", "message": body.decode(errors="replace")}
                return answer.status, json.loads(body or b"{}")
            except (http.client.HTTPException, OSError):
                line.close()
                self._lines.line = None
                if last:
                    raise
        raise AssertionError

    def _connect(self) -> http.client.HTTPSConnection:
        at = urlsplit(self.server)
        assert at.hostname is not None
        line = http.client.HTTPSConnection(at.hostname, at.port, context=self._context, timeout=60)
        self._open.append(line)
        self._lines.line = line
        return line

    def close(self) -> None:
        """Close the connections."""
        for line in self._open:
            line.close()
