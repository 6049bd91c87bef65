"""The stock transformers script on Kubernetes: measured, killed, resumed, resized, and not changed.

Its packages are a volume: the environment of `make suite SUITE=stacks`. The worker's image of
deploy/images has the same ones, but takes 9 GB of each node.
"""

import subprocess
import time
from pathlib import Path

import pytest
import yaml
from planrun import laid
from tests.checkout import PACKAGES, ROOT

pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly]

EXAMPLE = ROOT / "examples/stacks/transformers"
CLAIM = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {namespace}-stack}}
spec:
  capacity: {{storage: 10Gi}}
  accessModes: [ReadOnlyMany]
  storageClassName: stack
  hostPath: {{path: {folder}}}
  claimRef: {{namespace: {namespace}, name: stack}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: stack}}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: stack
  volumeName: {namespace}-stack
  resources: {{requests: {{storage: 10Gi}}}}
"""


@pytest.fixture
def environment(cluster, namespace):
    """A claim of the stack's packages in the namespace."""
    script = [ROOT / "scripts/stack_env.sh", EXAMPLE.name]
    python = subprocess.run(script, check=True, capture_output=True, text=True).stdout.strip()
    cluster.apply(CLAIM.format(namespace=namespace, folder=Path(python).parents[1]), namespace)
    yield
    cluster.kubectl("delete", "persistentvolume", f"{namespace}-stack", "--wait=false")


@pytest.fixture
def stock(environment, plan, namespace, cluster):
    """The example's plan with its script in a ConfigMap and tokens for a long run."""
    cluster.kubectl("create", "configmap", "script", f"--namespace={namespace}", "--from-file", EXAMPLE)
    spec = yaml.safe_load((EXAMPLE / "plan.yaml").read_text())["spec"]
    packages = ":".join(str(ROOT / package) for package in PACKAGES)
    variables = {"OMP_NUM_THREADS": "1", "PATH": "/stack/bin:/usr/bin:/bin", "PYTHONPATH": packages}
    trainer = {
        "name": "trainer",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [
            {"name": "checkpoints", "mountPath": "/checkpoints"},
            {"name": "script", "mountPath": "/script"},
            {"name": "stack", "mountPath": "/stack"},
        ],
    }
    volumes = [
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}},
        {"name": "script", "configMap": {"name": "script"}},
        {"name": "stack", "persistentVolumeClaim": {"claimName": "stack"}},
    ]
    launch = {
        "command": ["/script/train.py"],
        "workingDir": "/checkpoints",
        "checkpoint": {"path": "/checkpoints/stock-trainer"},
        "podTemplate": {"spec": {"containers": [trainer], "volumes": volumes}},
    }
    laid(spec, {"launch": launch, "workload": {"tokens": "20M"}, "deadline": {"finishWithin": "100h"}})
    laid(spec, {"resources": {"minGPUs": 1}})
    return plan(**spec).start()


def saved(run, before=float("inf")):
    """The steps of the checkpoints before a moment."""
    checkpoints = (record for record, _ in run.records() if record["event"] == "checkpoint")
    return [record["step"] for record in checkpoints if record["time"] < before]


def kill_last_rank(run):
    """SIGKILL to a worker process, as the kernel does for memory."""
    start = run.started()
    pods = {pod["metadata"]["name"] for pod in run.pods()} - {name for _, name in run.records()}
    pid, pod = start["pids"][-1], pods.pop()
    run.kubectl("exec", pod, "--", "python3", "-c", f"import os; os.kill({pid}, 9)")


def test_a_stock_script_is_measured_killed_resumed_and_resized(stock, cluster):
    stock.steps_with(2, within_s=240)
    cluster.wait("a checkpoint", lambda: saved(stock), within_s=120)
    cluster.wait("a measured rate", lambda: stock.status.get("observed", {}).get("tokensPerSecond"))

    killed = time.time()
    kill_last_rank(stock)
    stock.steps_with(2, after=killed + 1)
    cluster.wait("a second start", lambda: stock.started(after=killed))
    again = stock.started(after=killed)
    assert again["step"] == max(saved(stock, before=again["time"]))
    assert stock.status["attempt"]["number"] == 1

    jobs, began = stock.jobs, time.time()
    stock.kubectl("scale", "tp", stock.name, "--replicas=1")
    stock.steps_with(1, after=began)
    start = stock.started(after=began)
    assert start["step"] > 0
    assert stock.jobs == jobs
    steps = [record for record, _ in stock.records() if record["event"] == "step"]
    assert {record["tokens"] / record["step"] for record in steps} == {16 * 64}
    assert steps[-1]["loss"] < steps[0]["loss"]

    stock.kubectl("delete", "tp", stock.name, "--timeout=10s")

    def left():
        return stock.kubectl("get", "jobs,pods,services,replicasets", "--output=name").split()

    cluster.wait("nothing is left", lambda: not left(), within_s=120)
