"""A reason why workers do not run becomes the plan's state, in the cluster's own words."""

import pytest

from rightsizer_api.state import State
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.snapshot import ChildWarning


def pod(**more):
    return Pod(name="demo-a1-0-x", attempt=1, **more)


def warning(kind, reason, message):
    return ChildWarning(kind=kind, name="demo-a1", reason=reason, message=message)


QUOTA = (
    'pods "demo-a1-0-x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3'
)
STANDARD = 'pods "demo-a1-0-x" is forbidden: violates PodSecurity "restricted:latest": hostNetwork=true'
WEBHOOK = 'admission webhook "validate.kyverno.svc" denied the request: labels are required'
CASES = {
    "no room": (
        {"pods": (pod(unschedulable="0/3 nodes are available: 3 Insufficient cpu."),)},
        "Unschedulable",
    ),
    "no claim": ({"pods": (pod(unschedulable='persistentvolumeclaim "ckpt" not found'),)}, "VolumeClaim"),
    "no image": ({"pods": (pod(waiting="ErrImagePull", waiting_message="not found"),)}, "ImagePull"),
    "no secret": (
        {"pods": (pod(waiting="CreateContainerConfigError", waiting_message='secret "hub" not found'),)},
        "ContainerError",
    ),
    "no store": (
        {"pods": (Pod(name="demo-rdzv-x", role="rendezvous", unschedulable="0/3 nodes are available"),)},
        "Unschedulable",
    ),
    "quota": ({"warnings": (warning("Job", "FailedCreate", QUOTA),)}, "QuotaExceeded"),
    "standard": ({"warnings": (warning("Job", "FailedCreate", STANDARD),)}, "AdmissionDenied"),
    "webhook": ({"warnings": (warning("ReplicaSet", "FailedCreate", WEBHOOK),)}, "AdmissionDenied"),
    "account": ({"warnings": (warning("Job", "FailedCreate", "serviceaccount not found"),)}, "FailedCreate"),
    "volume": ({"warnings": (warning("Pod", "FailedMount", 'configmap "data" not found'),)}, "VolumeMount"),
    "sandbox": ({"warnings": (warning("Pod", "FailedCreatePodSandBox", "no address left"),)}, "PodError"),
}


@pytest.mark.parametrize(("seen", "reason"), CASES.values(), ids=CASES)
def test_an_obstacle_is_the_state_with_its_message_and_an_event(fake_cluster, seen, reason):
    run = fake_cluster().settle()
    for name, value in seen.items():
        setattr(run, name, value)
    run.settle()
    said = [
        each.message
        for each in (*seen.get("warnings", ()), *seen.get("pods", ()))
        if hasattr(each, "message")
    ]
    assert run.state == reason
    assert State(reason).is_obstacle
    assert all(words in run.condition("Ready")["message"] for words in said)
    assert (run.events[-1].reason, run.events[-1].warning) == (reason, True)


def test_an_elastic_plan_trains_while_pending_workers_have_a_reason(fake_cluster):
    run = fake_cluster().settle()
    run.job(ready=1)
    run.pods = (pod(unschedulable="0/3 nodes are available"),)
    assert run.settle().state == "Running"
    assert "0/3 nodes are available" in run.condition("Ready")["message"]


def test_an_obstacle_that_is_gone_leaves_no_trace(fake_cluster):
    run = fake_cluster().settle()
    run.pods = (pod(unschedulable="0/3 nodes are available"),)
    run.settle().pods = ()
    assert run.settle().state == "Starting"
    run.job(ready=2)
    assert run.settle().state == "Running"


def test_a_plan_whose_workers_are_not_all_there_is_looked_at_again_within_seconds(fake_cluster):
    waits = [action.after_s for action in fake_cluster().settle().decide() if hasattr(action, "after_s")]
    assert waits == [2.0]
