"""The closed loop on a real Slurm: what a real Prometheus saw decides about real trainings."""

import json
import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from panels import questions
from prometheus import Prometheus, end
from training import Check, Training

from rightsizer_launch.worker.rendezvous import free_port
from rightsizer_telemetry import client

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
LOG = logging.getLogger(__name__)
WINDOW_S = 20
HASTE = ("--warm-up", "5s", "--window", f"{WINDOW_S}s")
PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {{name: small}}
spec:
  model: {{dimensions: {{layers: 16, hidden: 2048, ffnHidden: 8192, heads: 16, vocab: 32000}}}}
  workload: {{tokens: {tokens}, sequenceLength: 1024, globalBatchSequences: 24, precision: bf16}}
  deadline: {{finishWithin: {finish}}}
  resources: {{minGPUs: {least}, maxGPUs: 2, gpusPerNode: 1}}
  layout: {{microBatch: 4}}
  launch:
    framework: ddp
    command: [paced_train.py]
    env: {env}
    checkpoint: {{path: checkpoints, interval: 5s, grace: 60s}}
  elasticity: {{mode: Auto, minGPUs: 1}}
"""
PLANS = {
    # its user asks for two GPUs to begin with; by its pace one will do
    "early": ("h100", 2, ("10B", "96h"), {"STEP_SECONDS": "0.24"}),
    # by prediction one GPU is enough; by its pace it is not
    "late": ("h100", 1, ("10B", "6d"), {"STEP_SECONDS": "1.3"}),
    # by its pace too, and most of a step waits for data
    "starved": ("a100", 1, ("1B", "6d"), {"STEP_SECONDS": "1.3", "STALL": "0.6"}),
}


@pytest.fixture(scope="module")
def start(slurm, tmp_path_factory):
    """start(name): its plan, submitted; the training, and the job."""

    def begin(name, partition, least, goal, env):
        folder = tmp_path_factory.mktemp(name)
        shutil.copy(Path(__file__).parents[1] / "paced_train.py", folder)
        stated = [
            {"name": key, "value": value} for key, value in (env | {"GLOO_SOCKET_IFNAME": "lo"}).items()
        ]
        text = PLAN.format(least=least, tokens=goal[0], finish=goal[1], env=json.dumps(stated))
        (folder / "plan.yaml").write_text(text)
        training = Training(slurm=slurm, folder=folder)
        return training, training.submit("--partition", partition)

    yield begin
    slurm.cancel_all()


@pytest.fixture(scope="module")
def jobs(start):
    """All of them, side by side."""
    return {name: start(name, *what) for name, what in PLANS.items()}


@pytest.fixture(scope="module")
def prometheus(slurm, tmp_path_factory):
    """Prometheus on loopback, which scrapes GPUs and what the monitor writes."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "monitor.prom").touch()
    around = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("around_slurm.py"), folder / "monitor.prom"],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(slurm.environment),
    )
    target = {"targets": [f"127.0.0.1:{around.stdout.readline().strip()}"], "labels": {"cluster": slurm.name}}
    made = Prometheus(folder=folder, address=f"127.0.0.1:{free_port()}")
    made.configure(
        [
            {"job_name": page, "metrics_path": f"/{page}", "honor_labels": True, "static_configs": [target]}
            for page in ("jobstats", "textfile")
        ]
    )
    made.start()
    yield made
    made.kill()
    end(around)


@pytest.fixture(scope="module")
def monitor(jobs, prometheus):
    """A monitor that may do everything, in haste; its journal."""
    training, _ = next(iter(jobs.values()))
    state = prometheus.folder / "monitor.db"
    where = ("--prometheus", f"http://{prometheus.address}", "--textfile", prometheus.folder / "monitor.prom")
    argv = training.command(
        *("slurm", "monitor", "--act", "requeue", "--state", state, "--every", "2s", "--cool-down", "15s"),
        *(*HASTE, *where),
    )
    with (prometheus.folder / "monitor.log").open("w") as log:
        running = subprocess.Popen(
            argv, env=training.environment(), cwd=training.folder, stdout=log, stderr=log
        )
    yield state
    end(running)


@pytest.fixture
def told(jobs, prometheus):
    """told(job): what `rightsizer slurm report` says of it."""
    training, _ = next(iter(jobs.values()))

    def ask(job):
        done = training.rightsizer(
            *("slurm", "report", "--json", "--prometheus", f"http://{prometheus.address}", *HASTE)
        )
        assert done.returncode == 0, done.stderr
        return next((each for each in json.loads(done.stdout)["jobs"] if each["jobId"] == int(job)), {})

    return ask


def until(training, what, condition):
    """Wait for a condition of the report; the report."""
    found = {}

    def there():
        nonlocal found
        found = condition()
        return bool(found)

    training.wait(what, there)
    return found


def changed(training, job, state):
    """The monitor's changes of a job: kind, nodes before and after, and how it went."""
    done = training.rightsizer("slurm", "report", "--json", "--state", state)
    rows = json.loads(done.stdout)["resizes"]
    return [
        (row["kind"], row["fromNodes"], row["toNodes"], row["stage"])
        for row in rows
        if row["jobId"] == int(job)
    ]


def test_too_many_gpus_are_flagged_in_the_report_with_evidence(jobs, told):
    training, job = jobs["early"]

    def smaller():
        said = told(job)
        return said if said.get("action") == "shrink" else {}

    said = until(training, "a recommendation", smaller)
    LOG.info(f"{said}")
    assert said["wantsGpus"] == 1
    assert "window" in said["evidence"][0]
    assert any(line.startswith("avg_over_time(rightsizer:gpu_busy:ratio{") for line in said["evidence"])


def test_waiting_for_data_is_named(jobs, told):
    training, job = jobs["starved"]
    said = until(training, "a flag", lambda: (s := told(job)).get("action") == "flag" and s)
    assert "waits for data" in said["reason"]


def test_a_job_that_falls_behind_is_requeued_larger(jobs, monitor):
    training, job = jobs["late"]
    training.wait("two workers go on", training.trains(world=2))
    training.wait("it is done", lambda: ("requeue", 1, 2, "done") in changed(training, job, monitor))
    assert Check.continuous(training.records())


def test_gpus_return_to_a_waiting_job_and_training_continues(jobs, monitor, slurm):
    training, job = jobs["early"]
    seen = len(training.records())
    somebody_waits(slurm)
    training.wait("one worker goes on", training.trains(world=1, since=seen))
    assert ("shrink", 2, 1, "done") in changed(training, job, monitor)
    assert Check.continuous(training.records())
    assert Check.losses_fall(training.records())


def somebody_waits(slurm):
    """A job for all nodes of the partition, which must wait."""
    slurm.run(
        *("sbatch", "--partition=h100", "--nodes=4", "--gres=gpu:h100:8", "--job-name=next"),
        *("--output=/dev/null", "--wrap=sleep 1"),
    )


def test_every_panel_shows_something_of_it(jobs, monitor, prometheus):
    empty = dict(questions("slurm"))
    access = client.PrometheusSettings(url=f"http://{prometheus.address}", timeout_s=60.0)
    end_s = time.monotonic() + 90
    with client.Prometheus(access) as asked:
        while empty and time.monotonic() < end_s:
            answers = {panel: asked.instant(expr) for panel, expr in empty.items()}
            wrong = {
                panel: each.reason for panel, each in answers.items() if isinstance(each, client.FailedQuery)
            }
            assert wrong == {}
            empty = {panel: expr for panel, expr in empty.items() if not answers[panel]}
            time.sleep(2)
    assert list(empty) == []


def test_while_prometheus_is_dead_nothing_is_done_and_afterwards_the_right_thing(
    jobs, start, monitor, prometheus, told
):
    training, late = jobs["late"]
    training.slurm.run("scancel", "--name=next")
    training.slurm.run("scancel", late)
    prometheus.kill()
    training, job = start("quiet", *PLANS["early"])
    training.wait("two workers train", training.trains(world=2))
    somebody_waits(training.slurm)
    time.sleep(2 * WINDOW_S)
    assert "Prometheus does not answer" in told(job)["reason"]
    assert changed(training, job, monitor) == []
    prometheus.start()
    seen = len(training.records())
    training.wait("one worker goes on", training.trains(world=1, since=seen))
    assert changed(training, job, monitor) == [("shrink", 2, 1, "done")]


def test_no_job_flaps(jobs, monitor):
    kinds = {
        name: [row[:3] for row in changed(training, job, monitor)] for name, (training, job) in jobs.items()
    }
    assert kinds == {"early": [("shrink", 2, 1)], "late": [("requeue", 1, 2)], "starved": []}
