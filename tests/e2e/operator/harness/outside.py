"""Operators outside the cluster, each behind a front of the API server that can misbehave."""

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api_client import ApiClient
from apiproxy import FaultProxy

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
ZYGOTE = Path(__file__).with_name("zygote.py")
_PORTS = itertools.count(20_000 + os.getpid() % 10_000)


class Operator:
    """One operator process and its proxy."""

    def __init__(
        self,
        operators: "ExternalOperators",
        namespaces: tuple[str, ...] = (),
        lease: str = "",
        **settings: Any,
    ) -> None:
        self._operators, self._namespaces, self._settings = operators, namespaces, settings
        self._lease = lease or operators.system
        self.proxy = FaultProxy(operators.api.server, operators.api.trust, operators.token)
        self.log = operators.folder / f"operator-{self.proxy.url.rpartition(':')[2]}.log"
        self._kubeconfig = self.log.with_suffix(".kubeconfig")
        self._kubeconfig.write_text(json.dumps(_kubeconfig(self.proxy.url)))
        self.port = _free_port()
        self.pid = 0
        self._lock, self._closed = threading.RLock(), False

    def start(self) -> "Operator":
        """Start it, or start it again."""
        order = {
            "kubeconfig": str(self._kubeconfig),
            "log": str(self.log),
            "port": self.port,
            "lease": self._lease,
            "namespaces": self._namespaces,
            "settings": self._settings,
        }
        with self._lock:
            if not self._closed:
                self.pid = self._operators.fork(order)
        return self

    @property
    def words(self) -> str:
        """Its log."""
        return self.log.read_text() if self.log.exists() else ""

    @property
    def state(self) -> str:
        """Whether it runs, its last request, and its last log line."""
        alive = bool(self.pid) and Path(f"/proc/{self.pid}").exists()
        asked = "\n".join(f"{s.at:.3f} {s.method} {s.path} {s.status}" for s in self.proxy.log[-20:])
        return f"process {self.pid}, {'alive' if alive else 'gone'}\n{asked}\n{self.words[-3000:]}"

    def signal(self, number: int) -> None:
        """Signal it."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it as a crash would, and wait for its end."""
        with self._lock:
            pid, self.pid = self.pid, 0
            if not pid:
                return
            try:
                os.kill(pid, signal.SIGKILL)
                while True:
                    os.kill(pid, 0)
                    time.sleep(0.005)
            except ProcessLookupError:
                pass

    def get(self, path: str) -> tuple[int, str]:
        """A response of its own server: /healthz, /metrics."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            line.request("GET", path)
            answer = line.getresponse()
            return answer.status, answer.read().decode()
        finally:
            line.close()

    def close(self) -> None:
        """End both."""
        with self._lock:
            self._closed = True
            self.kill()
        self.proxy.close()


class ExternalOperators:
    """Starts operators outside the cluster, with the rights of the chart's service account."""

    def __init__(self, api: ApiClient, token: str, system: str, folder: Path) -> None:
        self.api, self.token, self.system, self.folder = api, token, system, folder
        self._zygote = subprocess.Popen(
            [sys.executable, ZYGOTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._made: list[Operator] = []
        self._lock = threading.Lock()

    def operator(self, **settings: Any) -> Operator:
        """A new operator, not started yet."""
        self._made.append(Operator(self, **settings))
        return self._made[-1]

    def fork(self, order: Mapping[str, Any]) -> int:
        """Start a process; its pid."""
        with self._lock:
            self._zygote.stdin.write(json.dumps(order) + "\n")
            self._zygote.stdin.flush()
            return int(self._zygote.stdout.readline())

    def delete_lease(self, namespace: str = "") -> None:
        """Delete the dead leader's Lease, so that the next one need not wait; another test measures that."""
        path = f"{LEASES.format(namespace or self.system)}/rightsizer-operator"
        self.api("DELETE", path)

    def end_all(self) -> None:
        """End the operators that were made."""
        while self._made:
            self._made.pop().close()

    def close(self) -> None:
        """End everything."""
        self.end_all()
        self._zygote.stdin.close()
        self._zygote.stdout.close()
        self._zygote.wait()


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "front",
        "clusters": [{"name": "front", "cluster": {"server": url}}],
        "users": [{"name": "front", "user": {"token": "the front adds it"}}],
        "contexts": [{"name": "front", "context": {"cluster": "front", "user": "front"}}],
    }


def _free_port() -> int:
    """Below the ports that Linux gives to connections: one might take it while its operator is dead."""
    for port in _PORTS:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError
