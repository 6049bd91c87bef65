import datetime as dt

import pytest

from rightsizer_operator.values.actions import Apply, Delete, EmitEvent, PatchJob, PatchStatus, Requeue
from rightsizer_operator.values.pods import START_S, Pod


def kinds(actions):
    return [type(a).__name__ + (f":{a.child['kind']}" if isinstance(a, Apply) else "") for a in actions]


def test_a_plan_becomes_a_status_then_a_service_a_store_and_one_job(fake_cluster):
    assert kinds(fake_cluster().decide()) == [
        "PatchStatus",
        "Apply:NetworkPolicy",
        "Apply:NetworkPolicy",
        "Apply:Service",
        "Apply:ReplicaSet",
        "Apply:Secret",
        "Apply:Job",
        "EmitEvent",
    ]


def test_a_settled_plan_needs_no_action(fake_cluster):
    assert not [action for action in fake_cluster().settle().decide() if not isinstance(action, Requeue)]


@pytest.mark.parametrize("kept", range(9))
def test_whatever_prefix_of_a_launch_got_through_the_next_decision_completes_it(fake_cluster, kept):
    settled, torn = fake_cluster().settle(), fake_cluster()
    for action in torn.decide()[:kept]:
        torn.execute(action)
    torn.settle()
    assert (torn.jobs, torn.children, torn.plan["status"]) == (
        settled.jobs,
        settled.children,
        settled.plan["status"],
    )


def test_a_job_is_an_elastic_indexed_job_as_kubernetes_wants_them(fake_cluster):
    spec = fake_cluster().settle().job()["spec"]
    assert (spec["completionMode"], spec["parallelism"], spec["completions"]) == ("Indexed", 2, 2)
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert (spec["podReplacementPolicy"], spec["template"]["spec"]["restartPolicy"]) == ("Failed", "Never")


def test_the_rendezvous_id_carries_the_plan_and_the_attempt(fake_cluster):
    trainer = fake_cluster().settle().job()["spec"]["template"]["spec"]["containers"][0]
    told = {variable["name"]: variable.get("value") for variable in trainer["env"]}
    assert told["PET_RDZV_ID"] == "uid-1-1"
    assert told["PET_NNODES"] == "1:4"
    assert told["PET_LOCAL_ADDR"] == "$(POD_IP)"
    assert trainer["env"][0]["name"] == "POD_IP"


def test_ready_workers_make_it_running_with_one_event(fake_cluster):
    running = fake_cluster().settle()
    running.job(ready=2)
    running.settle()
    assert running.state == "Running"
    assert [event.reason for event in running.events] == ["Sized", "Running"]


def test_an_elastic_plan_runs_with_some_of_its_workers(fake_cluster):
    running = fake_cluster().settle()
    running.job(ready=1)
    assert running.settle().condition("Running")["reason"] == "SomeWorkers"


def test_lost_workers_are_waited_for_with_a_message(fake_cluster):
    running = fake_cluster({"elasticity": {"mode": "Off"}}).settle()
    running.job(ready=2)
    running.settle().job(ready=1)
    assert running.settle().state == "Recovering"


@pytest.mark.parametrize("kind", ["Complete", "SuccessCriteriaMet"])
def test_a_finished_job_completes_the_plan_and_leaves_no_store(fake_cluster, kind):
    done = fake_cluster().settle().ends(kind).settle()
    assert (done.state, done.condition("Complete")["status"], done.children) == ("Complete", "True", set())
    done.jobs.clear()  # its time to live is over
    assert done.settle().state == "Complete"
    assert not done.jobs


def test_a_failed_job_fails_the_plan_in_the_worker_s_own_words(fake_cluster):
    broken = fake_cluster().settle()
    died = dt.datetime(2026, 11, 21, 12, 5, tzinfo=dt.UTC)
    broken.pods = (
        Pod(name="w0", attempt=1, phase="Failed", exit_code=78, message="OSError: disk", finished_at=died),
    )
    broken.ends("Failed", reason="PodFailurePolicy", message="exit code 78").settle()
    broken.pods = ()
    broken.settle()
    assert "OSError: disk" in broken.condition("Failed")["message"]
    assert broken.state == "Failed"
    assert broken.events[-1].warning
    assert broken.events[-1].message == broken.condition("Ready")["message"]
    assert "OSError: disk" in broken.events[-1].message


def test_a_deleted_plan_is_left_to_garbage_collection(fake_cluster):
    going = fake_cluster().settle()
    going.plan["metadata"]["deletionTimestamp"] = "2026-11-21T12:10:00Z"
    assert going.decide() == ()


def test_a_job_that_somebody_deleted_comes_back_under_its_name(fake_cluster):
    running = fake_cluster().settle()
    running.jobs.clear()
    running.settle()
    assert list(running.jobs) == ["demo-a1"]


def test_a_wiped_status_is_found_again_from_the_jobs(fake_cluster):
    running = fake_cluster().settle()
    del running.plan["status"]
    running.settle()
    assert list(running.jobs) == ["demo-a1"]
    assert running.plan["status"]["attempt"]["number"] == 1


def test_a_lost_store_comes_back_while_workers_run(fake_cluster):
    running = fake_cluster().settle()
    running.job(ready=2)
    running.settle().children.clear()
    assert kinds(running.decide()) == ["Apply:NetworkPolicy"] * 2 + ["Apply:Service", "Apply:ReplicaSet"]


def test_suspend_stops_the_job_and_resume_continues_the_same(fake_cluster):
    running = fake_cluster().settle()
    running.job(ready=2)
    running.settle().edit(suspend=True).settle()
    assert (running.job()["spec"]["suspend"], running.state) == (True, "Suspended")
    running.edit(suspend=False).settle()
    assert (running.job()["spec"]["suspend"], list(running.jobs)) == (False, ["demo-a1"])


def test_a_plan_that_is_born_suspended_starts_when_it_is_let(fake_cluster):
    waiting = fake_cluster({"suspend": True}).settle()
    assert (waiting.jobs, waiting.state) == ({}, "Suspended")
    assert list(waiting.edit(suspend=False).settle().jobs) == ["demo-a1"]


def test_only_stuck_pods_of_dead_nodes_are_removed_by_force(fake_cluster):
    running = fake_cluster().settle()
    gone = running.now - dt.timedelta(seconds=1)
    stuck = Pod(name="w0", uid="u0", node="n0", phase="Running", deletion_deadline=gone)
    running.pods = (stuck, Pod(name="w1", uid="u1", node="n1", phase="Running", deletion_deadline=gone))
    running.change_node(0, ready=False, not_ready_since=running.now - dt.timedelta(seconds=60))
    forced = [action for action in running.decide() if isinstance(action, Delete)]
    assert forced == [Delete(kind="Pod", name="w0", uid="u0", force=True)]


def test_a_pod_is_not_removed_while_its_node_may_still_come_back(fake_cluster):
    running = fake_cluster().settle()
    running.pods = (Pod(name="w0", node="n0", phase="Running", deletion_deadline=running.now),)
    running.change_node(0, ready=False, not_ready_since=running.now - dt.timedelta(seconds=10))
    assert not [action for action in running.decide() if isinstance(action, Delete)]


def test_a_status_is_written_only_when_it_changes(fake_cluster):
    running = fake_cluster().settle()
    running.job(ready=2)
    running.settle().later(minutes=1).settle().later(minutes=1)
    assert not [
        action for action in running.decide() if isinstance(action, PatchStatus | EmitEvent | PatchJob)
    ]


@pytest.mark.parametrize(
    ("phase", "state"), [("Succeeded", "Finishing"), ("Running", "Recovering")], ids=["done", "gone"]
)
def test_finished_workers_are_not_lost_before_their_job_completes(fake_cluster, phase, state):
    run = fake_cluster().settle()
    run.job(ready=2)
    run.settle().job(ready=0)
    run.pods = (Pod(name="demo-a1-0-x", attempt=1, phase=phase),)
    assert run.settle().state == state


def _patience_s(fake_cluster):
    """Seconds that each kind of pod stays on a silent node."""
    applied = [action.child for action in fake_cluster.decide() if isinstance(action, Apply)]
    pods = {c["kind"]: c["spec"]["template"]["spec"] for c in applied if c["kind"] in {"Job", "ReplicaSet"}}
    silent = {
        kind: [t for t in pod["tolerations"] if t["effect"] == "NoExecute"] for kind, pod in pods.items()
    }
    return {
        kind: sorted((t["key"].rpartition("/")[2], t["tolerationSeconds"]) for t in tolerations)
        for kind, tolerations in silent.items()
    }


def test_pods_outwait_the_minute_that_a_kubelet_may_need_after_the_api_server_was_away(fake_cluster):
    patience_s = [("not-ready", 90), ("unreachable", 90)]
    assert _patience_s(fake_cluster()) == {"Job": patience_s, "ReplicaSet": patience_s}


def test_a_plan_sets_the_time_of_its_pods_on_a_silent_node(fake_cluster):
    shorter = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "tolerationSeconds": 5}
    patience_s = [("not-ready", 90), ("unreachable", 5)]
    plan = fake_cluster({"launch": {"podTemplate": {"spec": {"tolerations": [shorter]}}}})
    assert _patience_s(plan) == {"Job": patience_s, "ReplicaSet": patience_s}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_never_force_deleted(fake_cluster, phase):
    run = fake_cluster().settle()
    run.pods = (Pod(name="w0", node="n0", phase=phase, deletion_deadline=run.now),)
    run.change_node(0, ready=False, not_ready_since=run.now - dt.timedelta(hours=1))
    assert not [action for action in run.decide() if isinstance(action, Delete)]


@pytest.mark.parametrize("ready", [0, 1, 2])
def test_workers_that_cannot_meet_are_not_running(fake_cluster, ready):
    run = fake_cluster().settle().later(seconds=START_S)
    run.rendezvous_ready = False
    run.job(ready=ready)
    assert run.settle().state == "Starting"
    assert run.condition("Running")["reason"] == "NoRendezvous"
    assert "the rendezvous pod is not ready" in run.condition("Ready")["message"]
    run.rendezvous_ready = True
    assert (run.settle().state == "Running") is (ready > 0)


@pytest.mark.parametrize(("seconds", "writes"), [(1, 0), (START_S, 1)], ids=["in its first seconds", "later"])
def test_a_step_of_a_start_is_a_status_only_when_the_start_takes_long(fake_cluster, seconds, writes):
    run = fake_cluster().settle().later(seconds=seconds)
    run.rendezvous_ready = False
    run.job(ready=1)
    assert sum(isinstance(action, PatchStatus) for action in run.decide()) == writes
    assert any(isinstance(action, Requeue) for action in run.decide())


def test_a_start_that_fails_at_once_is_reported_at_once(fake_cluster):
    run = fake_cluster().settle()
    run.pods = (Pod(name="w0", attempt=1, phase="Pending", waiting="ErrImagePull"),)
    assert run.settle().state == "ImagePull"


def test_workers_that_finish_need_no_store(fake_cluster):
    run = fake_cluster().settle()
    run.job(ready=2)
    run.settle().job(ready=1, succeeded=1)
    run.rendezvous_ready = False
    assert run.settle().state == "Finishing"


def test_a_new_attempt_has_a_new_store_by_the_present_template(fake_cluster):
    run = fake_cluster().settle()
    run.log.clear()
    run.edit(
        launch={"podTemplate": {"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}}}
    ).settle()
    named = [
        a.child["kind"] if isinstance(a, Apply) else a.kind for a in run.log if isinstance(a, Apply | Delete)
    ]
    assert named == ["Job", "ReplicaSet", "ReplicaSet", "Secret", "Job"]
    store = next(a.child for a in run.log if isinstance(a, Apply) and a.child["kind"] == "ReplicaSet")
    assert store["spec"]["template"]["spec"]["tolerations"][-1]["key"] == "team"
