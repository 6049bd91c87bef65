"""The end of a pod and the reason for its wait, from the objects of a kubelet and a scheduler."""

import pytest

from rightsizer_operator.values.pods import Pod


def pod(status, **metadata):
    labels = {"rightsizer.dev/attempt": "1", "rightsizer.dev/role": "worker"}
    return Pod.of({"metadata": {"name": "w0", "labels": labels, **metadata}, "spec": {}, "status": status})


def ended(code, reason="Error", message="", **status):
    terminated = {
        "exitCode": code,
        "reason": reason,
        "message": message,
        "finishedAt": "2026-11-21T12:00:00Z",
    }
    containers = [{"name": "trainer", "state": {"terminated": terminated}}]
    return pod({"phase": "Failed", "containerStatuses": containers, **status})


CAUSES = {
    "an exit code": (ended(3, message="ValueError: no"), "ValueError: no (exit code 3, pod w0)"),
    "a signal": (ended(139, message="x"), "x (exit code 139, SIGSEGV, pod w0)"),
    "out of memory, cgroup v2": (ended(137, "OOMKilled"), "OOMKilled, exit code 137, SIGKILL, pod w0"),
    "no program": (
        ended(128, "StartError", 'exec: "python": not found'),
        'exec: "python": not found (StartError, exit code 128, pod w0)',
    ),
    "our own last line": (
        ended(78, message="Traceback\nOSError: disk\nrightsizer: 3 failures; worker killed by signal 9"),
        "3 failures; worker killed by signal 9 (exit code 78, pod w0); last lines: Traceback\nOSError: disk",
    ),
    "a worker's line after it": (
        ended(78, message="OSError: disk\nrightsizer: 3 failures\nstopping"),
        "3 failures (exit code 78, pod w0); last lines: OSError: disk\nstopping",
    ),
    "no container": (
        pod({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy GPU"}),
        "no healthy GPU (UnexpectedAdmissionError, pod w0)",
    ),
}


@pytest.mark.parametrize(("pod", "cause"), CAUSES.values(), ids=CAUSES)
def test_the_cause_is_stated_in_words(pod, cause):
    assert pod.cause == cause


def test_last_lines_are_printable_and_bounded():
    cause = ended(1, message="\x1b]52;c;AAAA\x07" + "x" * 4000 + "the end").cause
    assert "\x1b" not in cause
    assert len(cause) < 1000
    assert "the end" in cause


def test_an_init_container_counts_before_the_trainer_that_waits_for_it():
    waits = {"state": {"waiting": {"reason": "PodInitializing"}}, "name": "trainer"}
    pulls = {"state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}, "name": "data"}
    found = pod({"initContainerStatuses": [pulls], "containerStatuses": [waits]})
    assert (found.waiting, found.waiting_message) == ("ErrImagePull", "gone")


def test_a_container_that_is_being_created_waits_for_nothing():
    waits = {"state": {"waiting": {"reason": "ContainerCreating"}}, "name": "trainer"}
    assert pod({"containerStatuses": [waits]}).waiting == ""


@pytest.mark.parametrize(
    ("condition", "words"),
    [({"reason": "Unschedulable", "message": "0/3 nodes"}, "0/3 nodes"), ({"status": "True"}, "")],
)
def test_a_pod_without_a_node_has_a_reason(condition, words):
    assert pod({"conditions": [{"type": "PodScheduled", **condition}]}).unschedulable == words
