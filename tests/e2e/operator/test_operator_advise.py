"""`rightsizer advise` on a Job that rightsizer did not launch: counted, measured by its log, left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

SCRIPT = """
import time
for n in range(5):
    print(f"iteration {n + 1} | elapsed time per iteration (ms): 8000.0", flush=True)
time.sleep(600)
"""


@pytest.fixture
def job(cluster, namespace):
    """A Job of one pod with two GPUs, which prints lines as Megatron-LM does."""
    image = cluster.api.get("deployment", "rightsizer", namespace="rightsizer-system")["spec"]["template"][
        "spec"
    ]
    container = {
        "name": "train",
        "image": image["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", SCRIPT],
        "resources": {"limits": {"nvidia.com/gpu": 2}},
    }
    pod = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "own",
            "annotations": {"rightsizer.dev/comment": "rightsizer: model=gpt2 tokens=10B global-batch=512k"},
        },
        "spec": {"template": {"spec": pod}},
    }
    cluster.apply(yaml.safe_dump(manifest), namespace)

    def printed():
        own = "batch.kubernetes.io/job-name=own"
        pods = cluster.api.get("pods", namespace=namespace, selector=own)["items"]
        return any("iteration 5" in cluster.logs(pod["metadata"]["name"], namespace) for pod in pods)

    cluster.wait("five lines of the job", printed, within_s=120)
    yield namespace
    cluster.kubectl("delete", "job", "own", f"--namespace={namespace}", "--wait=false")


def test_an_existing_job_is_measured_and_left_alone(cluster, operator, job):
    before = cluster.api.get("job", "own", namespace=job)
    path = os.pathsep.join((str(Path(cluster.kubectl_path).parent), os.environ["PATH"]))
    command = [
        *(sys.executable, "-c", "from rightsizer_cli.start import main; main()"),
        *("advise", "--kubernetes", "job/own", "--namespace", job, "--deadline", "30d", "--json"),
    ]
    settings = {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["job"]["gpus"] == 2
    assert found["job"]["gpu"]
    assert found["measured"]["tokens_per_s"] == pytest.approx(512_000 / 8.0, rel=0.05)
    assert found["reason"]
    assert cluster.api.get("job", "own", namespace=job)["spec"] == before["spec"]
