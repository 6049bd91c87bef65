"""Build the binaries once, from the pinned module graphs in modules/, into the cache.

Each folder of modules/ is a module graph of its own (go.mod, go.sum), because their authors pin different
versions of the same libraries. A graph's key is the digest of its files, of how it is built and of the Go
version: another checkout with the same pins finds the binaries, a changed pin builds beside them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import host
import toolchain
from place import MODULES, ClusterError, Place

KUBERNETES_VERSION = "1.36.3"
KUEUE_VERSION = "0.16.1"
JOBSET_VERSION = "0.10.1"
TRAINER_VERSION = "2.1.0"
VERSION_SYMBOL = "k8s.io/component-base/version.gitVersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One module graph: what is built from it, and which folders of its sources are kept beside it."""

    name: str
    commands: Mapping[str, str]  # binary -> package
    version_symbols: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # kept as -> (module, folder in it)

    @property
    def link_flags(self) -> str:
        return " ".join(["-s", "-w", *(f"-X {symbol}={v}" for symbol, v in self.version_symbols.items())])


def _kubernetes(command: str) -> str:
    return f"k8s.io/kubernetes/cmd/{command}"


GRAPHS = {
    graph.name: graph
    for graph in (
        Graph(
            name="kubernetes",
            commands={
                "kube-apiserver": _kubernetes("kube-apiserver"),
                "kube-controller-manager": _kubernetes("kube-controller-manager"),
                "kube-scheduler": _kubernetes("kube-scheduler"),
                "kubelet": _kubernetes("kubelet"),
                "kube-proxy": _kubernetes("kube-proxy"),
                "gpu-plugin": "./gpu-plugin",
                "pause": "./pause",
            },
            version_symbols={VERSION_SYMBOL: f"v{KUBERNETES_VERSION}"},
        ),
        Graph(name="etcd", commands={"etcd": "go.etcd.io/etcd/server/v3"}),
        Graph(name="coredns", commands={"coredns": "."}),
        Graph(name="helm", commands={"helm": "helm.sh/helm/v4/cmd/helm"}),
        Graph(name="nfpm", commands={"nfpm": "github.com/goreleaser/nfpm/v2/cmd/nfpm"}),
        Graph(
            name="kwok",
            commands={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
            folders={"stages": ("sigs.k8s.io/kwok", "kustomize/stage")},
        ),
        Graph(
            name="kueue",
            commands={"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
            version_symbols={"sigs.k8s.io/kueue/pkg/version.GitVersion": f"v{KUEUE_VERSION}"},
            folders={"chart": ("sigs.k8s.io/kueue", "charts/kueue")},
        ),
        Graph(
            name="jobset",
            commands={"jobset": "sigs.k8s.io/jobset"},
            folders={"chart": ("sigs.k8s.io/jobset", "charts/jobset")},
        ),
        Graph(
            name="trainer",
            commands={"trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"},
            folders={"chart": ("github.com/kubeflow/trainer/v2", "charts/kubeflow-trainer")},
        ),
    )
}
NEEDED_TO_RUN = ("kubernetes", "etcd", "coredns")


def _run(go: Path, graph: Graph, arguments: list[str]) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    done = subprocess.run(
        [go, *arguments],
        check=False,
        cwd=MODULES / graph.name,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"go {arguments[0]} failed in {MODULES / graph.name}: {last}")
    return done.stdout.strip()


def _key(go: Path, graph: Graph) -> str:
    digest = hashlib.sha256(repr((graph.link_flags, sorted(graph.commands.items()))).encode())
    digest.update(_run(go, graph, ["env", "GOVERSION", "GOOS", "GOARCH"]).encode())
    for path in sorted((MODULES / graph.name).rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(MODULES)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(go: Path, graph: Graph, into: Path) -> None:
    building = into.with_name(f"{into.name}.building")
    shutil.rmtree(building, ignore_errors=True)  # what a build that was killed left
    building.mkdir()
    for binary, package in graph.commands.items():
        began_s = time.monotonic()
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", graph.link_flags]
        _run(go, graph, ["build", *flags, "-o", str(building / binary), package])
        sys.stderr.write(f"built {binary} in {time.monotonic() - began_s:.0f} s\n")
    for kept_as, (module, folder) in graph.folders.items():
        sources = Path(_run(go, graph, ["list", "-m", "-f", "{{.Dir}}", module]))
        shutil.copytree(sources / folder, building / kept_as, copy_function=shutil.copyfile)
    building.rename(into)


def built(at: Place, name: str) -> Path:
    """The folder with the graph's binaries, built if it does not exist."""
    graph = GRAPHS[name]
    go = toolchain.go(at)
    into = at.cache / f"{name}-{_key(go, graph)}"
    if not into.exists():
        with host.locked(at.cache / f"{name}.lock"):
            if not into.exists():
                sys.stderr.write(f"building {name} (once; kept in {into})\n")
                _build(go, graph, into)
    return into


def binaries(at: Place, names: tuple[str, ...] = NEEDED_TO_RUN) -> dict[str, Path]:
    """Every binary of these graphs by name."""
    return {command: built(at, name) / command for name in names for command in GRAPHS[name].commands}
