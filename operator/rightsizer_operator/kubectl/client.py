"""The user's kubectl: their kubeconfig, context, namespace and credentials, as they use it elsewhere."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rightsizer_api.untrusted_text import printable, printable_strings
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.values import immutable

Object = Mapping[str, Any]
Runner = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
PLANS = "trainingplans.rightsizer.dev"


class ClusterError(RightsizerError):
    """A kubectl or API server error, with its message."""


class Where(Protocol):
    """Which cluster and namespace, as kubectl's options of these names; an empty one is kubectl's default."""

    @property
    def namespace(self) -> str:
        """The namespace of the plans."""

    @property
    def context(self) -> str:
        """The context of the kubeconfig."""

    @property
    def kubeconfig(self) -> str:
        """The kubeconfig's file."""


@immutable
class Client:
    """kubectl with its cluster and namespace; tests replace `run`, which starts it."""

    where: Where
    run: Runner

    @classmethod
    def of(cls, where: Where) -> "Client":
        """The kubectl on the PATH."""
        path = shutil.which("kubectl")
        if path is None:
            raise InputError("kubectl", value="", remedy="is not on your PATH")

        def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run([path, *arguments], check=False, capture_output=True, text=True)

        return cls(where=where, run=run)

    def call(self, *arguments: str) -> str:
        """The output of kubectl; ClusterError with its last line if it fails."""
        options = {"namespace": self.where.namespace, "context": self.where.context}
        options["kubeconfig"] = self.where.kubeconfig
        done = self.run([*(f"--{name}={value}" for name, value in options.items() if value), *arguments])
        if done.returncode:
            message = (done.stderr.strip().splitlines() or [f"kubectl exits with {done.returncode}"])[-1]
            message = printable(message)
            raise ClusterError(message.removeprefix("error: ").removeprefix("Error from server "))
        return done.stdout

    def get(self, *what: str) -> Object:
        """An object or a list; control characters in its text are escaped, since tenants wrote it."""
        document: Object = printable_strings(json.loads(self.call("get", *what, "--output=json")))
        return document

    def plan(self, name: str) -> Object:
        """One TrainingPlan."""
        return self.get(PLANS, checked_name(name))

    def plans(self, *, everywhere: bool) -> tuple[Object, ...]:
        """The TrainingPlans of the namespace, or of all namespaces."""
        return tuple(self.get(PLANS, *(("--all-namespaces",) if everywhere else ()))["items"])

    def events(self, plan: Object) -> tuple[Object, ...]:
        """A plan's Events, oldest first; empty without permission to read them."""
        metadata = plan["metadata"]
        selector = f"--field-selector=involvedObject.uid={metadata['uid']}"
        try:
            events = self.get("events", selector, f"--namespace={metadata['namespace']}")["items"]
        except ClusterError:
            return ()
        return tuple(sorted(events, key=lambda event: event.get("lastTimestamp") or ""))

    def patch(self, name: str, spec: Object) -> None:
        """Change fields of a plan's spec."""
        body = json.dumps({"spec": spec})
        self.call("patch", PLANS, checked_name(name), "--type=merge", f"--patch={body}")

    def create(self, manifest: str) -> None:
        """Create the objects of a manifest."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(manifest)
            file.flush()
            self.call("create", f"--filename={file.name}")

    def delete(self, name: str) -> None:
        """Delete a plan, if it is there; its children follow."""
        self.call("delete", PLANS, checked_name(name), "--ignore-not-found", "--wait=false")

    def scale(self, name: str, gpus: int) -> None:
        """Set the number of GPUs, as `kubectl scale` does."""
        self.call("scale", PLANS, checked_name(name), f"--replicas={gpus}")


def checked_name(name: str) -> str:
    """A valid object name; no other text reaches kubectl's command line."""
    if not _NAME.fullmatch(name):
        raise InputError("NAME", value=name, remedy="is not a valid TrainingPlan name")
    return name
