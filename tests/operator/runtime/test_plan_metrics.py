import pytest
from prometheus_client import generate_latest

from rightsizer_api.state import State
from rightsizer_launch.worker.metrics import TrainMetrics
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.measure.agent_metrics import parse_agent_metrics
from rightsizer_operator.measure.gauges import plan_gauges, plan_info
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.values.conditions import json_merge_patch
from rightsizer_operator.values.quantities import parse_quantity


def patched(old, patch):
    """RFC 7386."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = patched(result.get(key) if isinstance(result.get(key), dict) else {}, value)
        else:
            result[key] = value
    return result


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}),
        ({"a": [1, 2]}, {"a": [2]}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}, "e": []}),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_a_merge_patch_turns_the_old_document_into_the_new_one(old, new):
    patch = json_merge_patch(old, new)
    assert patched(old, patch) == new
    assert bool(patch) == (old != new)


SIZING = {
    "gpus": 6,
    "nodes": 1,
    "gpuType": "H100",
    "layout": {"dp": 3, "tp": 2},
    "layoutText": "TP 2, DP 3",
    "globalBatchSequences": 6,
    "stepSeconds": 1.0,
    "finishSeconds": 9.0,
    "checkpointIntervalSeconds": 60.0,
}


def test_counters_and_states_start_at_zero():
    text = Metrics().render().decode()
    assert all(f'rightsizer_plans{{state="{state}"}} 0.0' in text for state in State)
    for code in ("0", "409", "429", "500"):
        assert f'rightsizer_operator_api_errors_total{{code="{code}"}} 0.0' in text


def test_a_failed_request_is_counted_by_its_status():
    metrics = Metrics()
    metrics.count_request("PATCH", 409)
    assert 'rightsizer_operator_api_errors_total{code="409"} 1.0' in metrics.render().decode()


def test_a_plan_s_gauges_come_from_its_status_and_are_removed_with_it():
    status = {"sizing": SIZING, "deadline": "2026-11-21T13:00:00Z", "eta": "2026-11-21T12:00:00Z"}
    facts = plan_gauges({"spec": {"resources": {"maxGPUs": 8}}, "status": status})
    assert facts == {"gpus": 6.0, "gpus_saved": 2.0, "margin_seconds": 3600.0}
    metrics = Metrics()
    words = plan_info({"status": {"sizing": SIZING}})
    metrics.set_plan(("team", "demo"), "Running", facts, words)
    assert 'rightsizer_plan_gpus_saved{namespace="team",plan="demo"} 2.0' in metrics.render().decode()
    line = 'rightsizer_plan_info{gpu_type="H100",layout="TP 2, DP 3",namespace="team",plan="demo"} 1.0'
    assert line in metrics.render().decode()
    metrics.forget(("team", "demo"))
    assert "demo" not in metrics.render().decode()


def test_metrics_can_be_rendered_by_name():
    metrics = Metrics()
    metrics.set_plan(("team", "demo"), "Running", {"gpus": 6.0})
    words = metrics.render(["rightsizer_operator_queue", "rightsizer_plan_gpus"]).decode()
    named = {line.split("{")[0].split()[0] for line in words.splitlines() if not line.startswith("#")}
    assert named == {"rightsizer_operator_queue", "rightsizer_plan_gpus"}


def test_describe_lists_the_families_of_collect():
    metrics = Metrics()
    assert [family.name for family in metrics.describe()] == [family.name for family in metrics.collect()]


def test_progress_is_parsed_from_the_agent_s_metrics():
    agent = TrainMetrics()
    agent.set(position_tokens=3e6, tokens_per_second=50.0, step=7, loss=2.5, restarts=1)
    progress = parse_agent_metrics(generate_latest(agent.registry).decode())
    assert (progress.tokens, progress.tokens_per_s, progress.step) == (3e6, 50.0, 7)
    assert (progress.loss, progress.restarts, progress.checkpoint_at) == (2.5, 1, None)


@pytest.mark.parametrize("text", ["", "not metrics {", "up 1\n"], ids=["empty", "torn", "others"])
def test_metrics_without_progress_parse_to_none(text):
    assert parse_agent_metrics(text) is None


def test_older_versions_that_arrive_late_are_dropped():
    def plan(version):
        return {"metadata": {"namespace": "team", "name": "demo", "uid": "uid-1", "resourceVersion": version}}

    cache = Cache()
    assert cache.set_plan(plan("10"))
    assert not cache.set_plan(plan("9"))
    assert cache.plans["team", "demo"]["metadata"]["resourceVersion"] == "10"


def _job(**metadata):
    owner = {"kind": "TrainingPlan", "name": "demo", "uid": "uid-1", "controller": True}
    trainer = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"namespace": "team", "resourceVersion": "7", "ownerReferences": [owner], **metadata},
        "spec": {"template": {"spec": {"containers": [trainer]}}},
    }


@pytest.mark.parametrize(
    "labels",
    [{}, {"rightsizer.dev/plan": "other", "rightsizer.dev/attempt": "x"}, {"rightsizer.dev/attempt": "9"}],
    ids=["none", "nonsense", "another"],
)
def test_a_job_s_plan_and_attempt_come_from_its_owner_and_name(labels):
    cache = Cache()
    cache.set_plan(
        {"metadata": {"namespace": "team", "name": "demo", "uid": "uid-1", "resourceVersion": "1"}}
    )
    cache.set_job(_job(name="demo-a2", labels=labels))
    assert [(job.name, job.attempt) for job in cache.owned(("team", "demo"))] == [("demo-a2", 2)]


@pytest.mark.parametrize(
    ("spelled", "number"),
    [(8, 8), ("8", 8), ("1k", 1000), ("2Ki", 2048), ("-1", 0), ("1.5", 0), ("many", 0), ("", 0), (None, 0)],
    ids=str,
)
def test_quantities_are_parsed_and_invalid_ones_count_as_zero(spelled, number):
    assert parse_quantity(spelled) == number
