import pytest

from rightsizer_operator.values.snapshot import ReportedProgress


def live(fake_cluster, *changes, **cluster):
    running = fake_cluster(*changes, **cluster).settle()
    running.job(ready=running.job()["spec"]["parallelism"])
    return running.settle()


@pytest.mark.parametrize("gpus", [1, 3])
def test_an_elastic_plan_changes_its_number_of_workers_in_place(fake_cluster, gpus):
    running = live(fake_cluster).edit(resources={"gpus": gpus}).settle()
    spec = running.job()["spec"]
    assert (list(running.jobs), spec["parallelism"], spec["completions"]) == (["demo-a1"], gpus, gpus)
    assert running.plan["status"]["resizes"][-1]["toGPUs"] == gpus
    assert running.plan["status"]["sizing"]["globalBatchSequences"] == 24


def test_a_resize_is_resizing_until_its_workers_are_there(fake_cluster):
    running = live(fake_cluster).edit(resources={"gpus": 3}).settle()
    assert (running.state, running.condition("Resizing")["reason"]) == ("Resizing", "InPlace")
    running.job(ready=3)
    running.settle()
    assert (running.state, running.condition("Resizing")["status"]) == ("Running", "False")


@pytest.mark.parametrize("kept", range(4))
def test_whatever_prefix_of_a_resize_got_through_the_next_decision_completes_it(fake_cluster, kept):
    running = live(fake_cluster).edit(resources={"gpus": 3})
    for action in running.decide()[:kept]:
        running.execute(action)
    running.settle()
    assert (list(running.jobs), running.job()["spec"]["parallelism"]) == (["demo-a1"], 3)
    assert len(running.plan["status"]["resizes"]) == 1


def test_a_later_deadline_changes_no_job(fake_cluster):
    running = live(fake_cluster)
    before = running.job()
    running.edit(deadline={"finishWithin": "3h"}).settle()
    assert running.job() == before
    assert running.plan["status"]["deadline"] == "2026-11-21T15:00:00Z"


@pytest.mark.parametrize(
    "change",
    [
        {"workload": {"tokens": "20M"}},
        {"workload": {"globalBatchSequences": 48}},
        {"launch": {"command": ["other.py"]}},
        {"launch": {"image": "ghcr.io/acme/train:1.5"}},
        {"elasticity": {"mode": "Off"}},
    ],
    ids=["tokens", "batch", "command", "image", "elasticity"],
)
def test_the_workers_arguments_change_only_in_a_new_attempt(fake_cluster, change):
    running = live(fake_cluster).edit(**change).settle()
    assert list(running.jobs) == ["demo-a2"]
    assert running.plan["status"]["attempt"]["number"] == 2


def test_a_new_attempt_starts_when_the_one_before_has_left(fake_cluster):
    running = live(fake_cluster).edit(workload={"tokens": "20M"})
    for action in running.decide():
        if type(action).__name__ != "Delete":
            running.execute(action)
    running.job(1)["metadata"]["deletionTimestamp"] = "2026-11-21T12:10:00Z"
    running.settle()
    assert (list(running.jobs), running.state) == (["demo-a1"], "Resizing")
    running.jobs.clear()
    running.settle()
    assert list(running.jobs) == ["demo-a2"]


@pytest.mark.parametrize("kept", range(8))
def test_whatever_prefix_of_a_relayout_got_through_there_is_one_job_in_the_end(fake_cluster, kept):
    running, done = live(fake_cluster).edit(workload={"tokens": "20M"}), 0
    while done < kept and (actions := [a for a in running.decide() if not hasattr(a, "after_s")]):
        running.execute(actions[0])
        done += 1
    running.settle()
    assert list(running.jobs) == ["demo-a2"]


def test_a_plan_that_is_not_elastic_resizes_as_a_new_attempt(fake_cluster):
    running = live(fake_cluster, {"elasticity": {"mode": "Off"}}).edit(resources={"gpus": 4}).settle()
    assert (list(running.jobs), running.job(2)["spec"]["parallelism"]) == (["demo-a2"], 4)
    trainer = running.job(2)["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "PET_NNODES", "value": "4:4"} in trainer["env"]


def test_an_edit_that_cannot_be_leaves_the_running_job_alone(fake_cluster):
    running = live(fake_cluster)
    before = running.job()
    running.edit(resources={"gpus": 4, "gpuTypes": ["no-such-gpu"]}).settle()
    assert running.job() == before
    assert (running.condition("Accepted")["status"], running.state) == ("False", "Running")


def test_more_tokens_after_the_end_resume_from_there(fake_cluster):
    done = live(fake_cluster).ends("Complete").settle()
    assert done.state == "Complete"
    done.edit(workload={"tokens": "20M"}).settle()
    assert (done.pending[0]["metadata"]["name"], done.state) == ("demo-a2", "Starting")


def test_measurements_decide_the_eta_and_are_written_at_intervals(fake_cluster):
    running = live(fake_cluster)
    running.progress = ReportedProgress(tokens=5e6, tokens_per_s=100.0, step=1628)
    running.settle()
    status = running.plan["status"]
    assert status["eta"] == "2026-11-22T01:53:20Z"  # 50,000 s
    assert running.condition("DeadlineAtRisk")["status"] == "True"
    running.later(seconds=30).progress = ReportedProgress(tokens=6e6, tokens_per_s=100.0, step=1900)
    assert running.decide() == ()
    assert running.later(seconds=31).settle().plan["status"]["observed"]["tokens"] == 6e6


def test_a_plan_past_its_tokens_is_done_at_its_last_measurement(fake_cluster):
    """12M of 10M tokens are done, so nothing is left, even at 0.01 tokens/s."""
    running = live(fake_cluster)
    running.progress = ReportedProgress(tokens=12e6, tokens_per_s=0.01, step=4000)
    assert running.settle().plan["status"]["eta"] == "2026-11-21T12:00:00Z"


def test_a_suspended_plan_has_no_expected_end(fake_cluster):
    running = live(fake_cluster)
    assert "eta" in running.plan["status"]
    suspended = running.edit(suspend=True).settle()
    assert not suspended.plan["status"].get("eta")
    assert suspended.condition("DeadlineAtRisk")["reason"] == "NoEstimate"


@pytest.mark.parametrize(
    ("ended", "reason"),
    [("2026-11-21T14:00:00Z", "Finished"), ("2026-11-21T14:00:01Z", "Late")],
    ids=["at the deadline", "a second later"],
)
def test_a_plan_that_ends_at_its_deadline_is_not_late(fake_cluster, ended, reason):
    """Created at 12:00, to finish within 2 h."""
    done = live(fake_cluster)
    done.ends("Complete", lastTransitionTime=ended).job()["status"]["completionTime"] = ended
    assert done.settle().condition("DeadlineAtRisk")["reason"] == reason


REAL = {
    "model": {"dimensions": {"layers": 8, "hidden": 2048, "ffnHidden": 5632, "heads": 16, "vocab": 16000}},
    "workload": {"sequenceLength": 4096, "globalBatchSequences": 32, "precision": "bf16"},
    "deadline": {"finishWithin": "2000h"},
    "resources": {"maxGPUs": 16},
    "layout": None,
}


@pytest.mark.parametrize(
    ("mode", "micro_batch", "attempts"),
    [("Recommend", 8, ["demo-a1"]), ("Off", 16, ["demo-a2"])],
    ids=["elastic", "fixed"],
)
def test_a_micro_batch_of_a_plan_that_comes_and_goes_divides_at_its_other_sizes_where_that_is_cheap(
    fake_cluster, mode, micro_batch, attempts
):
    run = fake_cluster(REAL | {"elasticity": {"mode": mode}}).settle()
    assert run.plan["status"]["sizing"]["layout"]["microBatch"] == micro_batch
    run.edit(resources={"gpus": 4}).settle()
    assert list(run.jobs) == attempts


def test_a_micro_batch_that_the_plan_states_is_kept_whatever_sizes_it_divides_at(fake_cluster):
    run = fake_cluster(REAL | {"elasticity": {"mode": "Recommend"}, "layout": {"microBatch": 16}}).settle()
    assert run.plan["status"]["sizing"]["layout"]["microBatch"] == 16


def test_a_plan_without_elasticity_whose_job_was_deleted_takes_an_edit(fake_cluster):
    run = live(fake_cluster, {"elasticity": {"mode": "Off"}})
    run.jobs.clear()
    run.edit(resources={"gpus": 3}).settle()
    assert run.plan["status"]["attempt"]["gpus"] == 3
    assert run.pending[0]["spec"]["parallelism"] == 3
