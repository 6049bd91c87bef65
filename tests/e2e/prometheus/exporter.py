"""A stand-in for GPU exporters (DCGM's, jobstats', slurm-job-exporter, kube-state-metrics), for tests only.

It serves invented GPUs under the real names and labels. The agent's and the operator's metrics beside them
are the real code's; Slurm's monitor is spoken for by its declared names.
"""

import http.server
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rightsizer_launch.worker.metrics import TrainMetrics
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_telemetry.names import SLURM, SLURM_LABELS

H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-80GB"
TOKENS_PER_S = 1000.0
DATA_WAIT = 0.3


class Exporter:
    """The server, on a free port of loopback."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._operator = _operator()
        self._train = TrainMetrics()
        self._trained_s = 0.0
        self._lock = threading.Lock()
        pages: Mapping[str, Callable[[], bytes]] = {
            "/dcgm": lambda: _text(dcgm(kubernetes=True)),
            "/dcgm-honoured": lambda: _text(dcgm(kubernetes=False)),
            "/jobstats": lambda: _text(jobstats()),
            "/slurm-job-exporter": lambda: _text(slurm_job_exporter()),
            "/kube-state-metrics": lambda: _text(kube_state_metrics()),
            "/agent": self._agent,
            "/operator": self._operator.render,
            "/slurm": _slurm,
        }

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path)
                body = page() if page else b""
                self.send_response(200 if page else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def serve(self) -> None:
        """Serve until the process ends; the first line on stdout is the port."""
        sys.stdout.write(f"{self._server.server_address[1]}\n")
        sys.stdout.flush()
        self._server.serve_forever()

    def _agent(self) -> bytes:
        """A training that has kept its rate since the start: the real agent's metrics, one step a second."""
        with self._lock:
            elapsed_s = time.monotonic() - self._began_s
            while self._trained_s + 1 <= elapsed_s:
                self._trained_s += 1
                self._train.observe(tokens=TOKENS_PER_S, step_s=1.0)
                self._train.spend(data_wait=DATA_WAIT, checkpoint=0.0)
            self._train.enter("training")
            self._train.set(
                position_tokens=self._trained_s * TOKENS_PER_S,
                target_tokens=1e7,  # more than a session of tests trains
                step=self._trained_s,
                tokens_per_second=TOKENS_PER_S,
                loss=2.5,
                workers=4,
                checkpoint_timestamp_seconds=time.time() - 30,
            )
            return generate_latest(self._train.registry)


Line = tuple[str, Mapping[str, str], float]


def _text(lines: Sequence[Line]) -> bytes:
    words = [
        f"{name}{{{','.join(f'{key}={_quoted(value)}' for key, value in labels.items())}}} {number}\n"
        for name, labels, number in lines
    ]
    return "".join(words).encode()


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def dcgm(*, kubernetes: bool) -> list[Line]:
    """A healthy plan, an idle notebook, a half-used server, a free GPU; else a MIG slice."""
    host = {"Hostname": "n1.example.org", "modelName": H100}
    if not kubernetes:
        slice_ = {"GPU_I_ID": "1", "GPU_I_PROFILE": "1g.10gb", "namespace": "mig", "pod": "small-0"}
        labels = {"hostname": "n2", "modelName": H100, "gpu": "0", "UUID": "GPU-m", **slice_}
        return [("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, 0.5), ("DCGM_FI_DEV_FB_USED", labels, 1000)]
    pods = [
        *(("team", f"llama-a1-{i}-x7k2p", 0.9, 0.4, 600.0) for i in range(4)),
        *(("play", "notebook", 0.0, 0.0, 70.0) for _ in range(2)),
        ("team", "server-0", 0.2, 0.05, 200.0),
        ("odd", 'quo"te\\ness', 0.7, 0.2, 500.0),
        ("", "", 0.0, 0.0, 60.0),
    ]
    lines: list[Line] = []
    for i, (namespace, pod, busy, tensor, watts) in enumerate(pods):
        owner = {"namespace": namespace, "pod": pod, "container": "main"} if pod else {}
        labels = {**host, "gpu": str(i), "UUID": f"GPU-{i}", **owner}
        lines += [
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, busy),
            ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", labels, tensor),
            ("DCGM_FI_PROF_DRAM_ACTIVE", labels, busy / 2),
            ("DCGM_FI_PROF_SM_ACTIVE", labels, busy * 0.9),
            ("DCGM_FI_DEV_GPU_UTIL", labels, 100 * busy),
            ("DCGM_FI_DEV_FB_USED", labels, 60000 if busy else 1000),
            ("DCGM_FI_DEV_FB_FREE", labels, 20000 if busy else 79000),
            ("DCGM_FI_DEV_FB_RESERVED", labels, 0),
            ("DCGM_FI_DEV_POWER_USAGE", labels, watts),
        ]
    lying = {**host, "namespace": "liar", "container": "main"}
    for i, value in enumerate((float("nan"), -0.5, 90.0)):
        labels = {**lying, "pod": f"liar{i}", "gpu": f"1{i}", "UUID": f"GPU-1{i}"}
        lines.append(("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, value))
    return lines


def jobstats() -> list[Line]:
    """A Slurm job of four GPUs, two of which it never uses."""
    lines: list[Line] = []
    for i in range(4):
        labels = {"minor_number": str(i), "ordinal": str(i), "uuid": f"GPU-j{i}", "name": A100}
        labels |= {"jobid": "101", "userid": "1000"}
        lines += [
            ("nvidia_gpu_duty_cycle", labels, 80 if i < 2 else 0),
            ("nvidia_gpu_memory_used_bytes", labels, 40e9 if i < 2 else 1e9),
            ("nvidia_gpu_memory_total_bytes", labels, 80e9),
            ("nvidia_gpu_power_usage_milliwatts", labels, 350e3 if i < 2 else 60e3),
            ("nvidia_gpu_jobUid", labels, 1000),
        ]
    return lines


def slurm_job_exporter() -> list[Line]:
    """A Slurm job of one GPU."""
    labels = {"user": "bob", "account": "physics", "slurmjobid": "102", "gpu": "0", "gpu_type": A100}
    return [
        ("slurm_job_utilization_gpu", labels, 40),
        ("slurm_job_power_gpu", labels, 200e3),
        ("slurm_job_memory_usage_gpu", labels, 20e9),
        ("slurm_job_memory_total_gpu", labels, 80e9),
    ]


def kube_state_metrics() -> list[Line]:
    """A pod that holds eight GPUs which no exporter reports."""
    pod = {"namespace": "dark", "pod": "unseen-0"}
    return [
        ("kube_pod_container_resource_requests", {**pod, "resource": "nvidia_com_gpu", "unit": "integer"}, 8),
        ("kube_pod_status_phase", {**pod, "phase": "Running"}, 1),
    ]


def _operator() -> Metrics:
    """The real operator's metrics with two plans."""
    metrics = Metrics()
    metrics.is_leader.set(1)
    metrics.queue.set(0)
    metrics.launches.inc(2)
    metrics.count_request("GET", 200)
    metrics.count_request("PATCH", 409)
    metrics.reconcile_seconds.observe(0.02)
    facts = {"gpus": 4.0, "gpus_saved": 4.0, "attempt": 1.0, "restarts": 1.0, "recommended_gpus": 3.0}
    rates = {"predicted_tokens_per_second": 1100.0, "measured_tokens_per_second": TOKENS_PER_S}
    split = {"layout": "DP 4, micro-batch 2", "gpu_type": "H100-SXM5-80GB"}
    metrics.set_plan(("team", "llama"), "Running", {**facts, **rates, "margin_seconds": 3600.0}, split)
    metrics.set_plan(("team", "late"), "Running", {**facts, **rates, "margin_seconds": -7200.0}, split)
    return metrics


def _slurm() -> bytes:
    """Every declared metric of Slurm's monitor, for job 101."""
    registry = CollectorRegistry()
    job = {"cluster": "hpc", "jobid": "101"}
    values = {
        **job,
        "user": "ada",
        "account": "lab",
        "partition": "gpu",
        "plan": "big",
        "state": "RUNNING",
        "action": "keep",
        "command": "squeue",
        "layout": "DP 4, micro-batch 2",
        "gpu_type": "H100-SXM5-80GB",
    }
    for name, words in SLURM.items():
        labels = SLURM_LABELS.get(name, tuple(job))
        number = {
            "rightsizer_slurm_job_info": 1.0,
            "rightsizer_slurm_sweep_timestamp_seconds": time.time(),
        }.get(name, 4.0)
        if "(histogram)" in words:
            Histogram(name, words, registry=registry).observe(0.01)
        elif name.endswith("_total"):
            counter = Counter(name, words, labels, registry=registry)
            (counter.labels(*(values.get(label, label) for label in labels)) if labels else counter).inc(
                number
            )
        else:
            gauge = Gauge(name, words, labels, registry=registry)
            (gauge.labels(*(values.get(label, label) for label in labels)) if labels else gauge).set(number)
    return generate_latest(registry)


if __name__ == "__main__":
    Exporter().serve()
