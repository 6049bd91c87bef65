"""docs/tutorials/kubernetes.md as written, on a plan that trains until it is deleted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture
def terminal(cluster, namespace, tmp_path):
    """terminal(script): its output; kubectl and its plugin are on the PATH, the namespace is the test's."""
    config = tmp_path / "config"
    config.write_text(cluster.kubeconfig.read_text())
    (tmp_path / "kubectl").symlink_to(cluster.kubectl_path)
    path = os.pathsep.join((str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]))

    def run(script):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "KUBECONFIG": str(config)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run(f"kubectl config set-context --current --namespace={namespace}")
    return run


def test_the_kubernetes_tutorial_plans_suspends_resumes_and_leaves_nothing(
    terminal, plan, commands, tmp_path
):
    run = plan()
    manifest = tmp_path / "examples/02-kubernetes/plan.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(yaml.safe_dump_all([run.document, run.claim]))
    said = terminal("".join(commands("tutorials/kubernetes.md")))
    assert "2 H100-SXM5-80GB" in said
    assert "Suspended" in said
    assert "No resources found" in terminal("kubectl get trainingplans,persistentvolumeclaims")
