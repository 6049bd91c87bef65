"""The cluster's client, as its administrator."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import host
import toolchain
from place import Place


def command(at: Place, *arguments: str | Path) -> tuple[str | Path, ...]:
    """kubectl with the cluster's kubeconfig."""
    return (toolchain.kubectl(at), f"--kubeconfig={at.kubeconfig}", *arguments)


def run(at: Place, *arguments: str | Path, text: str | None = None) -> str:
    """The output of kubectl, which must succeed."""
    return host.run(*command(at, *arguments), text=text)


def ready(at: Place) -> bool:
    """True if the API server reports that it is ready."""
    return at.kubeconfig.exists() and host.ask(*command(at, "get", "--raw", "/readyz")).stdout == "ok"


def nodes(at: Place) -> tuple[Mapping[str, Any], ...]:
    """The Node objects."""
    done = host.ask(*command(at, "get", "nodes", "--output", "json"))
    return tuple(json.loads(done.stdout)["items"]) if done.returncode == 0 else ()


def node_is_ready(node: Mapping[str, Any]) -> bool:
    """Whether its kubelet reports."""
    conditions = node["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def allocatable_gpus(node: Mapping[str, Any]) -> int:
    """The GPUs that the device plugin advertises and the kubelet reports."""
    return int(node["status"].get("allocatable", {}).get("nvidia.com/gpu", "0"))


def has_default_account(at: Place) -> bool:
    """Whether pods can be created in the default namespace."""
    return host.ask(*command(at, "get", "serviceaccount", "default")).returncode == 0
