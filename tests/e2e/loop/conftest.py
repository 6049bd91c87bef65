"""Plans side by side on the tests' Kubernetes, an operator in haste, and a Prometheus that sees both."""

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
sys.path += [
    str(Path(__file__).parents[1] / name) for name in ("operator/harness", "prometheus", "slurm_jobs")
]
from planrun import Run
from prometheus import Prometheus, end, until_there

from rightsizer_api import validate
from rightsizer_operator.reconcile.size import cluster_request
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_telemetry import client

E2E = Path(__file__).resolve().parents[1]
CHART = E2E.parents[1] / "helm" / "rightsizer"
SYSTEM = "rightsizer-system"
INSIDE = "10.200.0.1"  # of the control plane, where pods find it
PORT = 9090
IMAGE = "ghcr.io/acme/train:1.4"
SIGNALS = "127.0.0.1:9400"
HASTE = {
    "every": "2s",
    "judgeEvery": "3s",
    "window": "24s",
    "warmUp": "5s",
    "coolDown": "15s",
    "look": "30s",
    "restart": "1s",
    "resizeWithin": "90s",
}
"""The operator's documented options; everything else is as shipped."""
WORKLOAD = {
    "model": {"dimensions": {"layers": 16, "hidden": 2048, "ffnHidden": 8192, "heads": 16, "vocab": 32000}},
    "workload": {
        "tokens": "100B",
        "sequenceLength": 1024,
        "globalBatchSequences": 24,
        "precision": "bf16",
        "attention": "flash",
    },
}
"""What the plans say that they train; at what pace, the scenario says."""


@pytest.fixture(scope="module")
def inside(cluster, tmp_path_factory):
    """The command prefix and the kubeconfig for programs in the control plane's network."""
    kubeconfig = tmp_path_factory.mktemp("inside") / "kubeconfig"
    document = json.loads(cluster.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://{INSIDE}:6443"
    kubeconfig.write_text(json.dumps(document))
    return ["nsenter", f"--net=/run/netns/{cluster.name}-cp"], kubeconfig


@pytest.fixture(scope="module")
def prometheus(inside, tmp_path_factory):
    """A Prometheus that pods reach, with the documented scrape jobs."""
    enter, kubeconfig = inside
    folder = tmp_path_factory.mktemp("prometheus")
    signals = subprocess.Popen(
        [
            *enter,
            sys.executable,
            Path(__file__).with_name("around.py"),
            kubeconfig,
            SIGNALS.rpartition(":")[2],
        ]
    )
    made = Prometheus(folder=folder, address=f"{INSIDE}:{PORT}", enter=enter)
    found = {
        name: [{"url": f"http://{SIGNALS}/{name}", "refresh_interval": "5s"}]
        for name in ("trainings", "operators")
    }
    pages = {name: [{"targets": [SIGNALS]}] for name in ("dcgm", "kube-state-metrics")}
    made.configure(
        [
            *(
                {"job_name": job, "http_sd_configs": sd, "honor_labels": job == "operators"}
                for job, sd in found.items()
            ),
            *(
                {"job_name": job, "metrics_path": f"/{job}", "honor_labels": True, "static_configs": at}
                for job, at in pages.items()
            ),
        ]
    )
    made.start()
    yield made
    made.kill()
    end(signals)


@pytest.fixture(scope="module")
def asked(cluster, prometheus):
    """A client on this side of that network."""
    port_file = prometheus.folder / "relay.port"
    argv = [sys.executable, E2E / "cluster" / "relay.py", f"{cluster.name}-cp", INSIDE, port_file, str(PORT)]
    relay = subprocess.Popen(argv)
    url = f"http://127.0.0.1:{until_there(port_file, relay)}"
    with client.Prometheus(client.PrometheusSettings(url=url, timeout_s=60.0)) as made:
        yield made
    end(relay)


@pytest.fixture(scope="module")
def operator(cluster, prometheus):
    """The operator, installed by its chart with that Prometheus and short intervals; restored afterwards."""
    helm = [cluster.control("tool", "helm").strip(), f"--kubeconfig={cluster.kubeconfig}"]
    release = ("rightsizer", f"--namespace={SYSTEM}", "--wait")
    values = {"prometheusUrl": f"http://{INSIDE}:{PORT}", "resizing": HASTE}
    put = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    was = subprocess.run([*helm, "status", *release[:2]], check=False, capture_output=True).returncode == 0
    install = ("upgrade", "--install", "--create-namespace", "--timeout=900s", *release, CHART, *put)
    done = subprocess.run([*helm, *install], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    yield SYSTEM
    subprocess.run([*helm, "rollback" if was else "uninstall", *release], check=True, capture_output=True)


@pytest.fixture(scope="module")
def strangers(cluster, operator):
    """Two pods that are no plan's: one leaves its GPU idle, the other's GPU is seen by no exporter.

    Each is on a node of its own. With a plan on the third no node is free.
    """
    cluster.kubectl("create", "namespace", "loop-others")
    for node, name, note in (("n1", "notebook", "busy=0"), ("n2", "unmetered", "unmetered=")):
        key, _, value = note.partition("=")
        container = {
            "name": name,
            "image": IMAGE,
            "command": ["sleep", "infinity"],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {f"rightsizer.test/{key}": value}},
            "spec": {
                "containers": [container],
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": 0,
            },
        }
        cluster.apply(json.dumps(pod), "loop-others")
    yield
    cluster.kubectl("delete", "namespace", "loop-others", "--wait=false")


def request_of(cluster, document):
    """The operator's request to the engine for a plan."""
    nodes = tuple(ClusterNode.of(raw) for raw in cluster.api.get("nodes")["items"])
    now = dt.datetime.now(dt.UTC)
    return cluster_request(validate(document), inventory=Inventory(nodes=nodes), created=now)


def due(spec, plan, share):
    """Give the spec this plan's deadline, of which the training really takes a share on one GPU."""
    within_s = plan.request.deadline_s
    spec["deadline"] = {"finishWithin": f"{within_s:.0f}s"}
    step_s = share * within_s / plan.request.workload.steps
    spec["launch"]["env"] = [{"name": "STEP_SECONDS", "value": f"{step_s:.4f}"}]


@pytest.fixture(scope="module")
def launch(cluster, api, operator, plan_within):
    """launch(name, ...): a plan in a namespace of its own, which trains from now on.

    `wanted`: what its size is like, by a deadline in place of `finish`; `share`: of that deadline, what the
    training really takes on one GPU; `work`: what it says that it trains.
    """
    made = []

    def begin(
        name, *, mode="Auto", finish="31d", least=1, most=2, env=None, notes=None, pods=None, idle=None,
        wanted=None, share=None, work=WORKLOAD,
    ):  # fmt: skip
        namespace = f"loop-{name}"
        cluster.kubectl("create", "namespace", namespace)
        made.append(namespace)
        script = str(Path(__file__).parents[1] / "paced_train.py")
        spec = {
            **work,
            "deadline": {"finishWithin": finish},
            "resources": {"gpus": None, "minGPUs": least, "maxGPUs": most},
            "elasticity": {"mode": mode, "minGPUs": 1} | (idle or {}),
            "launch": {
                "command": [script],
                "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
                "checkpoint": {"interval": "5s"},
                "restarts": {"limit": 1, "within": "10m"},
                "podTemplate": {"metadata": {"annotations": notes or {}}, "spec": pods or {}},
            },
        }
        run = Run(cluster, api, namespace, metadata={"name": name}, **spec)
        if wanted:
            due(run.document["spec"], plan_within(request_of(cluster, run.document), wanted), share)
        return run.start()

    yield begin
    cluster.kubectl("delete", "namespace", *made, "--wait=false")


@pytest.fixture(scope="module")
def somebody_waits(cluster):
    """somebody_waits(namespace): a pod waits for a whole node, while each node has GPUs in use."""

    def begin(namespace):
        container = {"name": "next", "image": IMAGE, "resources": {"limits": {"nvidia.com/gpu": 8}}}
        spec = json.dumps({"spec": {"containers": [container]}})
        name = f"--namespace={namespace}"
        cluster.kubectl("run", "next", f"--image={IMAGE}", "--restart=Never", name, f"--overrides={spec}")

    return begin
