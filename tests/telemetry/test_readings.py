"""Readings from the responses of a stand-in for Prometheus: one value for each family of each job."""

import math

import pytest

from rightsizer_engine.domain.reading import Missing, Phase
from rightsizer_telemetry.client import FailedQuery, Row
from rightsizer_telemetry.readings import MonitoredJob, read, read_shown

NOW = 1_800_000_000.0
LABELS = {"executor": "slurm", "namespace": "", "workload": "7", "cluster": "c"}
ANSWERS = {
    "count_over_time(rightsizer:gpu_busy:ratio": 480.0,
    "sum_over_time(rightsizer:gpu_busy:ratio": 432.0,
    "max_over_time(rightsizer:gpu_busy:ratio": 1.0,
    "avg_over_time(rightsizer:gpu_tensor_active:ratio": 0.4,
    "avg_over_time(rightsizer:gpu_power:ratio": 0.8,
    "min_over_time(rightsizer:workload_gpus:count": 8.0,
    "max_over_time(rightsizer:workload_gpus:count": 8.0,
    "timestamp(rightsizer:workload_gpus:count": 20.0,
    "timestamp(rightsizer:train_step:max": 35.0,
    "count_over_time(rightsizer:train_step:max": 58.0,
    "sum_over_time(rightsizer:train_tokens:rate2m": 3000.0,
    "sum_over_time(rightsizer:train_step_seconds:rate2m": 1.5,
    "sum_over_time(rightsizer:train_steps:rate2m": 6.0,
    "min_over_time(rightsizer:train_workers:max": 8.0,
    "max_over_time(rightsizer:train_workers:max": 8.0,
    "max by (executor, cluster, namespace, workload) (rightsizer:train_step:max": 1234.4,
    "(rightsizer:train_position_tokens:max": 5e6,
    "(rightsizer:train_checkpoint_timestamp_seconds:max": NOW - 90.0,
}


JOB = MonitoredJob(key="k", executor="slurm", workload="7")


class Prometheus:
    """Answers each query whose text contains a key, for every job's labels."""

    def __init__(self, answers=ANSWERS, *, labels=(LABELS,), phases=("training",), now=NOW, down=()):
        self.answers, self.labels, self.phases, self.now, self.down = answers, labels, phases, now, down
        self.queries = []

    def instant(self, query, *, at_s=None):
        self.queries.append(query)
        if query == "vector(time())":
            return (
                self.now
                if isinstance(self.now, FailedQuery)
                else [Row(labels={}, time_s=NOW, value=self.now)]
            )
        assert at_s == self.now
        if any(part in query for part in self.down):
            return FailedQuery(reason="timed out")
        if "train_phase" in query:
            return [
                Row(labels=own | {"phase": p}, time_s=NOW, value=1.0)
                for own in self.labels
                for p in self.phases
            ]
        values = [value for part, value in self.answers.items() if part in query]
        return [Row(labels=own, time_s=NOW, value=value) for own in self.labels for value in values]


def reading(client=None, **job):
    some = MonitoredJob(**{"key": "k", "executor": "slurm", "workload": "7", "window_s": 1800.0} | job)
    return read(client or Prometheus(), [some], interval_s=30.0, clock=lambda: NOW)["k"]


def test_a_reading_is_made_of_one_value_for_each_family():
    found = reading()
    assert (found.gpu_busy_mean, found.gpu_busy_max, found.tensor_active) == (0.9, 1.0, 0.4)
    assert (found.tokens_per_s, found.tokens_done, found.steps) == (2000.0, 5e6, 1234)
    assert (found.window_steps, found.gpus, found.samples) == (180, 8, 480)
    assert (found.age_s, found.checkpoint_age_s, found.phase) == (35.0, 90.0, Phase.TRAINING)
    assert found.memory_active is None
    assert found.window_s == 1800.0


def test_coverage_is_the_share_of_samples_that_were_seen_of_gpus_or_of_the_training():
    """60 evaluations of 8 GPUs: 480 samples; 58 of 60 of the training."""
    assert reading().coverage == pytest.approx(58 / 60)
    assert reading(gpus=16).coverage == pytest.approx(0.5)
    assert reading(Prometheus({})).coverage is None


def test_a_window_is_rounded_up_to_whole_minutes():
    assert [reading(window_s=s).window_s for s in (1.0, 61.0, 120.0)] == [60.0, 120.0, 120.0]


def test_evidence_is_the_query_with_its_value():
    found = reading(cluster="c").queries
    assert any("gpu_busy:ratio" in text and text.endswith("= 0.9") for text in found)
    assert any("train_tokens" in text and text.endswith("= 2000") for text in found)
    assert not any("data_wait" in text for text in found)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_value_that_cannot_be_true_is_unknown(value):
    found = reading(Prometheus(ANSWERS | {"sum_over_time(rightsizer:train_tokens:rate2m": value}))
    assert found.tokens_per_s is None


def test_a_size_that_changed_in_the_window_is_unknown():
    changed = {name: 4.0 for name in ANSWERS if name.startswith("min_over_time")}
    assert reading(Prometheus(ANSWERS | changed)).gpus is None


@pytest.mark.parametrize(
    "labels",
    [
        (LABELS | {"executor": "kubernetes"},),
        (LABELS | {"workload": "8"},),
        (LABELS, LABELS | {"cluster": "another"}),
    ],
    ids=["another executor", "another job", "two jobs of one name"],
)
def test_rows_of_other_jobs_and_twice_the_same_are_not_taken(labels):
    assert reading(Prometheus(labels=labels)).tokens_per_s is None


def test_a_job_s_cluster_picks_its_row():
    both = Prometheus(labels=(LABELS, LABELS | {"cluster": "another"}))
    assert reading(both, cluster="c").tokens_per_s == 2000.0


@pytest.mark.parametrize("phases", [(), ("training", "evaluation"), ("of the future",)])
def test_no_phase_several_phases_and_unknown_ones_are_unknown(phases):
    assert reading(Prometheus(phases=phases)).phase is Phase.UNKNOWN


def test_one_question_may_fail_and_two_end_it():
    once = Prometheus(down=("gpu_dram_active",))
    assert reading(once).tokens_per_s == 2000.0
    twice = Prometheus(down=("gpu_dram_active", "gpu_power"))
    assert reading(twice).tokens_per_s is None
    assert len(twice.queries) < len(once.queries)


@pytest.mark.parametrize(
    "now",
    [NOW + 301.0, NOW - 301.0, math.nan, FailedQuery(reason="down")],
    ids=["ahead", "behind", "nan", "down"],
)
def test_a_server_that_is_down_or_in_another_time_yields_nothing(now):
    client = Prometheus(now=now)
    assert reading(client).tokens_per_s is None
    assert client.queries == ["vector(time())"]
    assert isinstance(read_shown(client, [JOB], clock=lambda: NOW), Missing)


@pytest.mark.parametrize(
    ("answers", "missing"),
    [(ANSWERS, None), ({}, "Prometheus does not show it: the newest sample has no known age")],
    ids=["shown", "not-shown"],
)
def test_a_job_is_read_or_has_a_reason(answers, missing):
    client = Prometheus(answers, now=NOW + 299.0)
    found = read_shown(client, [JOB], clock=lambda: NOW)["k"]
    assert found == (Missing(reason=missing) if missing else read(client, [JOB], clock=lambda: NOW)["k"])


def test_many_jobs_are_queried_in_parts():
    client = Prometheus()
    jobs = [MonitoredJob(key=i, executor="slurm", workload=str(i)) for i in range(401)]
    found = read(client, jobs, interval_s=30.0, clock=lambda: NOW)
    assert [key for key, one in found.items() if one.tokens_per_s is not None] == [7]
    assert sum("train_phase" in query for query in client.queries) == 3
