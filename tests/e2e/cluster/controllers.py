"""Other projects' controllers in the running cluster: the real ones, each from its own chart."""

import itertools
import json
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import build
import host
import images
import kubectl
import node
from images import Image
from place import ClusterError, Place, nodes

WAIT = "180s"
SMALL = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
"""Two cores serve everybody here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller. Its module graph and binary have its name; `values` gives its chart's from the build."""

    name: str
    namespace: str
    image: str
    values: Callable[[Path], Mapping[str, Any]]


def _kueue(built: Path) -> Mapping[str, Any]:
    """Kueue with elastic Jobs switched on."""
    repository, tag = CONTROLLERS["kueue"].image.rsplit(":", 1)
    return {
        "controllerManager": {
            "featureGates": [{"name": "ElasticJobsViaWorkloadSlices", "enabled": True}],
            "manager": {
                "image": {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"},
                "resources": SMALL,
            },
            "readinessProbe": {"initialDelaySeconds": 1},
            "livenessProbe": {"timeoutSeconds": 10, "failureThreshold": 30},  # busy is not dead
        },
        "managerConfig": {"controllerManagerConfigYaml": _kueue_settings(built)},
    }


def _kueue_settings(built: Path) -> str:
    """The chart's own configuration, without an election: a slow machine must not restart the one replica."""
    chart: str = (built / "chart" / "values.yaml").read_text()
    lines = chart.split("controllerManagerConfigYaml: |-\n", 1)[1].splitlines()
    kept = itertools.takewhile(lambda line: not line or line.startswith("    "), lines)
    return textwrap.dedent("\n".join(kept)).replace("leaderElect: true", "leaderElect: false")


def _jobset(built: Path) -> Mapping[str, Any]:
    """It makes the certificates of its webhooks itself, as Kueue does."""
    repository, tag = CONTROLLERS["jobset"].image.rsplit(":", 1)
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"},
        "controller": {"leaderElection": {"enable": False}, "resources": SMALL},
    }


def _trainer(built: Path) -> Mapping[str, Any]:
    """Kubeflow Trainer, which needs JobSet."""
    registry, _, image = CONTROLLERS["trainer"].image.partition("/")
    repository, tag = image.rsplit(":", 1)
    return {
        "image": {"registry": registry, "repository": repository, "tag": tag},
        "jobset": {"install": False},
        "manager": {"config": {"leaderElection": {"leaderElect": False}}, "resources": SMALL},
    }


CONTROLLERS = {
    each.name: each
    for each in (
        Controller(
            name="kueue",
            namespace="kueue-system",
            image=f"registry.k8s.io/kueue/kueue:v{build.KUEUE_VERSION}",
            values=_kueue,
        ),
        Controller(
            name="jobset",
            namespace="jobset-system",
            image=f"registry.k8s.io/jobset/jobset:v{build.JOBSET_VERSION}",
            values=_jobset,
        ),
        Controller(
            name="trainer",
            namespace="kubeflow-system",
            image=f"ghcr.io/kubeflow/trainer/trainer-controller-manager:v{build.TRAINER_VERSION}",
            values=_trainer,
        ),
    )
}


def _known(name: str) -> Controller:
    if name not in CONTROLLERS:
        raise ClusterError(f"{name}: the controllers are {', '.join(CONTROLLERS)}")
    return CONTROLLERS[name]


def install(at: Place, name: str) -> None:
    """Image on every node, chart installed; returns when the controller is ready."""
    it = _known(name)
    built = build.built(at, name)
    archive = at.state / f"{name}.tar"
    user = f"{images.NON_ROOT}:{images.NON_ROOT}"
    image = Image(name=it.image, user=user, files={"manager": built / name})
    images.write_archive(archive, (image,))
    for each in nodes(at):
        node.import_images(each, archive)
    where = ("--namespace", it.namespace, "--create-namespace", "--wait", "--timeout", WAIT)
    what = ("upgrade", "--install", name, str(_chart(at, it, built)), "--values", "-")
    _helm(at, *what, *where, text=json.dumps(it.values(built)))


def _chart(at: Place, it: Controller, built: Path) -> Path:
    """The chart without the charts that it depends on: Helm asks for these even if they are switched off."""
    chart = at.state / f"{it.name}-chart"
    shutil.rmtree(chart, ignore_errors=True)
    shutil.copytree(built / "chart", chart)
    described = chart / "Chart.yaml"
    parts = re.split(r"(?m)^(?=\w)", described.read_text())  # its top-level fields
    described.write_text("".join(part for part in parts if not part.startswith("dependencies:")))
    return chart


def uninstall(at: Place, name: str) -> None:
    """Take it away, with what its chart defines."""
    it = _known(name)
    crds = build.built(at, name) / "chart" / "crds"  # Helm leaves these
    if crds.exists():  # first: the controller takes its finalizers off their objects
        kubectl.run(at, "delete", "--filename", str(crds), "--recursive", "--ignore-not-found")
    _helm(at, "uninstall", name, "--namespace", it.namespace, "--wait", "--ignore-not-found")
    kubectl.run(at, "delete", "namespace", it.namespace, "--ignore-not-found", "--wait=false")


def _helm(at: Place, *arguments: str, text: str | None = None) -> None:
    helm = build.built(at, "helm") / "helm"
    host.run(helm, "--kubeconfig", at.kubeconfig, *arguments, text=text)
