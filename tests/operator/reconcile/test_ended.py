"""The end of a plan: its last numbers, and what starts it again."""

import json

import pytest

from rightsizer_operator.values.actions import Delete
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.snapshot import ReportedProgress


def running(fake_cluster):
    run = fake_cluster().settle()
    run.progress = ReportedProgress(tokens=4.9e6, tokens_per_s=1e5, step=1600, restarts=1)
    run.job(ready=2)
    return run.settle()


def left(text, **more):
    return (Pod(name="w0", attempt=1, phase="Succeeded", exit_code=0, message=text, **more),)


def complete(run):
    run.progress = None
    return run.ends("Complete").settle()


def test_the_last_numbers_are_those_that_a_worker_left_when_it_ended(fake_cluster):
    run = running(fake_cluster)
    run.pods = left(json.dumps({"step": 3256, "tokens": 1e7, "loss": 2.5, "time": 0}))
    observed = complete(run).plan["status"]["observed"]
    assert (observed["progress"], observed["step"], observed["loss"], observed["restarts"]) == (
        1,
        3256,
        2.5,
        1,
    )


@pytest.mark.parametrize(
    "text", ["", "torn {", "[]", '{"tokens": NaN, "step": 1}', '{"tokens": -1, "step": 1}']
)
def test_an_invalid_number_changes_nothing(fake_cluster, text):
    run = running(fake_cluster)
    before = run.plan["status"]["observed"]
    run.pods = left(text)
    assert complete(run).plan["status"]["observed"] == before


def test_a_complete_plan_starts_for_more_tokens_only(fake_cluster):
    run = complete(running(fake_cluster))
    jobs = list(run.jobs)
    run.edit(deadline={"finishWithin": "1h"}, resources={"gpus": 4}).settle()
    assert (run.state, list(run.jobs), run.plan["status"]["observedGeneration"]) == ("Complete", jobs, 2)
    run.edit(workload={"tokens": "20M"}).settle()
    assert "demo-a2" in run.jobs


def test_workers_that_exited_with_0_are_finishing_before_their_phase_changes(fake_cluster):
    run = running(fake_cluster)
    run.pods = (Pod(name="w0", attempt=1, phase="Running", exit_code=0),)
    run.job(ready=0)
    assert run.settle().state == "Finishing"


FORGED = {
    "another attempt": {"attempt": {"number": 7, "gpus": 2}},
    "the next attempt": {"attempt": {"number": 2, "gpus": 2, "jobName": "x"}},
    "no attempt": {"attempt": None},
    "no size": {"sizing": None},
    "a size without figures": {"sizing": {"feasible": True, "verdict": "", "binding": ""}},
    "an end": {"conditions": []},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_status_deletes_no_live_job(fake_cluster, forged):
    run = running(fake_cluster)
    for name, value in forged.items():
        if value is None:
            del run.plan["status"][name]
        else:
            run.plan["status"][name] = value
    run.settle()
    assert list(run.jobs) == ["demo-a1"]
    assert run.plan["status"]["attempt"]["number"] == 1
    assert not [action for action in run.log if isinstance(action, Delete) and action.kind == "Job"]


def test_a_forged_end_stops_no_live_job(fake_cluster):
    run = running(fake_cluster)
    for condition in run.plan["status"]["conditions"]:
        condition["status"] = "True" if condition["type"] in {"Complete", "Failed"} else condition["status"]
    assert run.settle().state == "Running"
    assert run.jobs["demo-a1"]["spec"].get("activeDeadlineSeconds") is None
