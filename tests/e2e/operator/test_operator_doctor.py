"""`rightsizer doctor` on the real cluster: sound, and with three things broken."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

PRODUCT = "nvidia.com/gpu.product"
BROKEN = "ghcr.io/acme/no-such-operator:0"


@pytest.fixture
def doctor(cluster, operator):
    """doctor(): exit code, and the lines that are not ok."""
    command = [
        sys.executable, "-c", "from rightsizer_cli.start import main; main()",
        "doctor", "kubernetes", "--json", f"--kubeconfig={cluster.kubeconfig}",
    ]  # fmt: skip

    path = os.pathsep.join((str(Path(cluster.kubectl_path).parent), os.environ["PATH"]))

    def call():
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
        assert not done.stderr, done.stderr
        findings = json.loads(done.stdout)
        return done.returncode, findings

    return call


def texts(findings, status):
    return [f"{finding['subject']}: {finding['text']}" for finding in findings if finding["status"] == status]


def test_a_cluster_with_the_operator_lacks_nothing(doctor, operator):
    code, findings = doctor()
    assert (code, texts(findings, "missing")) == (0, [])
    present = texts(findings, "ok")
    assert any(line.startswith(f"operator: {operator}/rightsizer: ") for line in present)
    assert any(line.startswith("GPUs: ") for line in present)
    assert any(line.startswith("TrainingPlans: ") for line in present)


def test_three_broken_things_are_named_with_remedies(doctor, cluster, namespace):
    first, second = [n for n in cluster.api.get("nodes")["items"] if PRODUCT in n["metadata"]["labels"]][:2]
    labelled, cordoned = first["metadata"]["name"], second["metadata"]["name"]
    product = first["metadata"]["labels"][PRODUCT]
    pod = {
        "metadata": {"labels": {"app.kubernetes.io/name": "rightsizer"}},
        "spec": {"containers": [{"name": "operator", "image": BROKEN}]},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "broken", "namespace": namespace, **pod["metadata"]},
        "spec": {"selector": {"matchLabels": pod["metadata"]["labels"]}, "template": pod},
    }

    def refused():
        pods = cluster.api.get("pods", namespace=namespace)["items"]
        states = [c["state"] for pod in pods for c in pod["status"].get("containerStatuses", ())]
        return any("Image" in state.get("waiting", {}).get("reason", "") for state in states)

    try:
        cluster.kubectl("label", "node", labelled, f"{PRODUCT}-")
        cluster.kubectl("cordon", cordoned)
        cluster.apply(yaml.safe_dump(deployment), namespace)
        cluster.wait("a refused image", refused, within_s=120)
        code, findings = doctor()
    finally:
        cluster.kubectl("label", "node", labelled, f"{PRODUCT}={product}", "--overwrite")
        cluster.kubectl("uncordon", cordoned)
        cluster.kubectl("delete", "deployment", "broken", f"--namespace={namespace}", "--ignore-not-found")
    assert code == 1
    missing, notes = texts(findings, "missing"), texts(findings, "note")
    assert f"GPU labels: {labelled} have GPUs without a product label" in missing
    assert any(line.startswith(f"operator: {namespace}/broken: 0 of 1 ready (") for line in missing)
    assert BROKEN in " ".join(missing)
    assert f"GPU nodes: {cordoned} not ready or cordoned" in notes
    assert all(finding["remedy"] for finding in findings if finding["status"] == "missing")
