"""Metrics of a hostile training, in Prometheus with the documented scrape job."""

import http.server
import re
import threading
import time
from pathlib import Path

import pytest
import yaml
from tests.e2e.prometheus.conftest import ROOT
from tests.e2e.prometheus.server import Server

from rightsizer_launch.worker.rendezvous import free_port

pytestmark = pytest.mark.prometheus

HOSTILE = """\
rightsizer_train_step{namespace="victim",pod="victim-a1-0-x",plan="theirs",jobid="4711",cluster="other"} 7
rightsizer_train_phase{phase="training",uuid="GPU-1"} 1
rightsizer_plan_margin_seconds{namespace="victim",plan="theirs"} 1e9
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",exported_namespace="victim",exported_pod="victim-a1-0-x"} 99
nvidia_gpu_duty_cycle{jobid="4711",minor_number="0",uuid="GPU-2"} 99
"""
CONFIGURATIONS = (ROOT / "docs" / "telemetry.md", ROOT / "helm/rightsizer/templates/monitoring.yaml")


def trainings_job():
    """The scrape job `trainings` of the documentation."""
    block = re.search(r"    scrape_configs:\n((?:    .*\n)+)", CONFIGURATIONS[0].read_text())[1]
    return next(job for job in yaml.safe_load(block) if job["job_name"] == "trainings")


@pytest.fixture
def training():
    """A training that serves arbitrary metrics; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(HOSTILE.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def prometheus(tmp_path: Path, training: int):
    target = {
        "targets": [f"127.0.0.1:{training}"],
        "labels": {"namespace": "own", "pod": "own-a1-0-y", "plan": "own"},
    }
    job = trainings_job() | {"static_configs": [target], "scrape_interval": "1s"}
    del job["kubernetes_sd_configs"], job["relabel_configs"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    server = Server(folder=tmp_path, port=free_port())
    server.start()
    yield server
    server.stop()


def test_a_training_speaks_of_itself_only(prometheus):
    with prometheus.client() as client:
        until = time.monotonic() + 60
        while not (series := client.instant('{job="trainings",__name__!~"up|scrape_.*"}')):
            assert time.monotonic() < until
            time.sleep(0.5)
    labels = [dict(each.labels) for each in series]
    assert {each["__name__"] for each in labels} == {"rightsizer_train_step", "rightsizer_train_phase"}
    identities = {(each["namespace"], each["pod"], each["plan"]) for each in labels}
    assert identities == {("own", "own-a1-0-y", "own")}
    assert set().union(*labels) <= {"__name__", "job", "instance", "namespace", "pod", "plan", "phase"}


def test_the_chart_keeps_what_the_documentation_keeps():
    kept = [
        set(re.findall(r"regex: (rightsizer_train_\.\+|__name__\|[a-z_|]+)", path.read_text()))
        for path in CONFIGURATIONS
    ]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 2
