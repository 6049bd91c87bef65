"""Kueue in the running cluster: the real controller, from its own chart, with elastic Jobs switched on."""

import itertools
import json
import textwrap
from pathlib import Path

import build
import host
import images
import kubectl
import node
from images import Image
from place import Place, nodes

NAMESPACE = "kueue-system"
REPOSITORY = "registry.k8s.io/kueue/kueue"
TAG = f"v{build.KUEUE_VERSION}"
WAIT = "180s"
VALUES = {
    "controllerManager": {
        "featureGates": [{"name": "ElasticJobsViaWorkloadSlices", "enabled": True}],
        "manager": {
            "image": {"repository": REPOSITORY, "tag": TAG, "pullPolicy": "IfNotPresent"},
            # two cores serve everybody here
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        },
        "readinessProbe": {"initialDelaySeconds": 1},
        "livenessProbe": {"timeoutSeconds": 10, "failureThreshold": 30},  # busy is not dead
    },
}


def install(at: Place) -> None:
    """Image on every node, chart installed; returns when the controller is ready."""
    built = build.built(at, "kueue")
    archive = at.state / "kueue.tar"
    user = f"{images.NON_ROOT}:{images.NON_ROOT}"
    image = Image(name=f"{REPOSITORY}:{TAG}", user=user, files={"manager": built / "kueue"})
    images.write_archive(archive, (image,))
    for each in nodes(at):
        node.import_images(each, archive)
    values = {**VALUES, "managerConfig": {"controllerManagerConfigYaml": _settings(built)}}
    where = ("--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", WAIT)
    what = ("upgrade", "--install", "kueue", str(built / "chart"), "--values", "-")
    _helm(at, *what, *where, text=json.dumps(values))


def _settings(built: Path) -> str:
    """The chart's own configuration, without an election: a slow machine must not restart the one replica."""
    chart: str = (built / "chart" / "values.yaml").read_text()
    lines = chart.split("controllerManagerConfigYaml: |-\n", 1)[1].splitlines()
    kept = itertools.takewhile(lambda line: not line or line.startswith("    "), lines)
    return textwrap.dedent("\n".join(kept)).replace("leaderElect: true", "leaderElect: false")


def uninstall(at: Place) -> None:
    """Take it away, with its queues and custom resource definitions."""
    _helm(at, "uninstall", "kueue", "--namespace", NAMESPACE, "--wait", "--ignore-not-found")
    kubectl.run(at, "delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def _helm(at: Place, *arguments: str, text: str | None = None) -> None:
    helm = build.built(at, "helm") / "helm"
    host.run(helm, "--kubeconfig", at.kubeconfig, *arguments, text=text)
