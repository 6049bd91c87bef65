"""A monitor with a Prometheus decides nothing on a job that Prometheus does not show."""

import pytest

from rightsizer_engine.domain.reading import Missing, Reading
from rightsizer_engine.resize.types import Action
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.monitor.gpu_metrics import reader
from rightsizer_slurm.monitor.intent_log import IntentLog
from rightsizer_slurm.monitor.monitor import Monitor
from rightsizer_slurm.monitor.settings import MonitorSettings
from rightsizer_telemetry.client import PrometheusSettings
from rightsizer_telemetry.readings import shown

JOB = SlurmJob(
    job_id=7, user="ada", user_id=1, states=("RUNNING",), partition="h100", nodes=1, gpus=4, comment=""
)
IDLE = Reading(window_s=600.0, age_s=5.0, coverage=1.0, samples=80, gpu_busy_max=0.0)
SPARSE = Reading(window_s=600.0, age_s=5.0, coverage=0.3, samples=24, gpu_busy_max=0.0, queries=("up = 1",))


class Still:
    """A cluster on which nothing happens."""

    def jobs(self):
        return (JOB,)

    def cluster(self):
        return SlurmCluster(partitions=(), nodes=())


def looked(tmp_path, metrics):
    (line,) = Monitor(Still(), IntentLog(tmp_path / "j.db"), MonitorSettings(), metrics=metrics).look()
    return line


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (shown(Reading()), "unknown: Prometheus does not show it: nothing was measured"),
        (shown(SPARSE), "unknown: Prometheus does not show it: only 30% of the expected samples arrived"),
        (Missing(reason="Prometheus does not answer: x"), "unknown: Prometheus does not answer: x"),
    ],
    ids=["empty", "sparse", "down"],
)
def test_missing_gpu_metrics_keep_the_size_with_a_reason(tmp_path, gpu, reason):
    decision = looked(tmp_path, lambda _: {7: gpu}).decision
    assert (decision.action, decision.reason, decision.missing) == (Action.KEEP, reason, gpu)


def test_an_idle_job_is_flagged_where_its_gpus_are_seen(tmp_path):
    assert looked(tmp_path, lambda _: {7: IDLE}).decision.action is Action.FLAG


def test_a_prometheus_that_is_down_leaves_everything_unknown(tmp_path):
    ask = reader(PrometheusSettings(url="http://127.0.0.1:1", timeout_s=1.0), window_s=600.0)
    made = looked(tmp_path, ask).decision
    assert made.action is Action.KEEP
    assert made.missing.reason.startswith("Prometheus does not answer: ConnectError")
