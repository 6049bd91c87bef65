"""Stand-ins for the surroundings of a Prometheus in a cluster: around.py KUBECONFIG PORT.

    /trainings, /operators   service discovery: pods as the chart's PodMonitor and ServiceMonitor choose them
    /dcgm                    dcgm-exporter: invented signals for each GPU that a running pod holds
    /kube-state-metrics      GPUs that pods ask for, and whether they run

Debian's Prometheus knows no Kubernetes. The pods are the cluster's own, asked for each time; what
the GPUs of a pod do is what its annotations rightsizer.test/busy and rightsizer.test/tensor say.
"""

import http.server
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from api_client import ApiClient

GPU = "nvidia.com/gpu"
MODEL = "NVIDIA H100 80GB HBM3"
PLAN = "rightsizer.dev/plan"


def gpus(pod: dict) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(c.get("resources", {}).get("limits", {}).get(GPU, 0)) for c in containers)


def running(pods: Iterable[dict]) -> Iterator[dict]:
    return (pod for pod in pods if pod["status"]["phase"] == "Running" and pod["status"].get("podIP"))


def targets(pods: Iterable[dict], port: int, label: str, value: str) -> str:
    """Pods with this label, as http_sd_config reads them."""
    found = []
    for pod in running(pods):
        metadata, labels = pod["metadata"], pod["metadata"].get("labels", {})
        if labels.get(label) == value:
            named = {"namespace": metadata["namespace"], "pod": metadata["name"]}
            named |= {"plan": labels[PLAN]} if PLAN in labels else {}
            found.append({"targets": [f"{pod['status']['podIP']}:{port}"], "labels": named})
    return json.dumps(found)


def dcgm(pods: Iterable[dict]) -> str:
    """Every held GPU, unless its pod is marked as unmetered, and a free one."""
    lines = signals({"gpu": "7", "UUID": "GPU-free", "Hostname": "n1"}, busy=0.0, tensor=0.0)
    for pod in running(pods):
        metadata, notes = pod["metadata"], pod["metadata"].get("annotations", {})
        if "rightsizer.test/unmetered" in notes:
            continue
        busy = float(notes.get("rightsizer.test/busy", 0.9))
        tensor = float(notes.get("rightsizer.test/tensor", 0.4 if busy else 0.0))
        for index in range(gpus(pod)):
            device = {"gpu": str(index), "UUID": f"GPU-{metadata['uid']}-{index}"}
            holder = {
                "Hostname": pod["spec"]["nodeName"],
                "namespace": metadata["namespace"],
                "pod": metadata["name"],
                "container": pod["spec"]["containers"][0]["name"],
            }
            lines += signals(device | holder, busy=busy, tensor=tensor)
    return "".join(lines)


def signals(labels: dict[str, str], *, busy: float, tensor: float) -> list[str]:
    values = {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": busy,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": tensor,
        "DCGM_FI_PROF_DRAM_ACTIVE": busy / 2,
        "DCGM_FI_PROF_SM_ACTIVE": busy * 0.9,
        "DCGM_FI_DEV_FB_USED": 60_000 if busy else 1_000,
        "DCGM_FI_DEV_FB_FREE": 20_000 if busy else 79_000,
        "DCGM_FI_DEV_FB_RESERVED": 0,
        "DCGM_FI_DEV_POWER_USAGE": 80 + 500 * busy,
    }
    return [series(name, {**labels, "modelName": MODEL}, value) for name, value in values.items()]


def kube_state_metrics(pods: Iterable[dict]) -> str:
    lines = []
    for pod in pods:
        place = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
        if gpus(pod):
            asked = {**place, "resource": "nvidia_com_gpu", "unit": "integer"}
            lines.append(series("kube_pod_container_resource_requests", asked, gpus(pod)))
        phase = {**place, "phase": pod["status"]["phase"]}
        lines.append(series("kube_pod_status_phase", phase, 1))
    return "".join(lines)


def series(name: str, labels: dict[str, str], value: float) -> str:
    words = ",".join(f"{key}={json.dumps(text)}" for key, text in labels.items())
    return f"{name}{{{words}}} {value}\n"


JSON, TEXT = "application/json", "text/plain; version=0.0.4"
PAGES = {
    "/trainings": (JSON, lambda pods: targets(pods, 29401, "rightsizer.dev/role", "worker")),
    "/operators": (JSON, lambda pods: targets(pods, 8080, "app.kubernetes.io/component", "operator")),
    "/dcgm": (TEXT, dcgm),
    "/kube-state-metrics": (TEXT, kube_state_metrics),
}


def main(kubeconfig: str, port: str) -> None:
    api = ApiClient(Path(kubeconfig))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, page = PAGES[self.path]
            body = page(api("GET", "/api/v1/pods")["items"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
