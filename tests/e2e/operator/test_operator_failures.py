"""Plans that cannot train: each ends or waits with its real cause. Plans of one test run side by side."""

import datetime as dt
import logging
import time
from pathlib import Path

import pytest
from planrun import IDLE

pytestmark = pytest.mark.kubernetes
LOG = logging.getLogger(__name__)
BROKEN = Path(__file__).with_name("harness") / "broken.py"
ONE = {"gpus": 1, "minGPUs": 1}


def launch(*arguments, pod=None, **more):
    """A worker that runs broken.py; `pod` is merged into its pod's spec, `trainer` into its container."""
    trainer = {"name": "trainer", **more.pop("trainer", {})}
    spec = {"containers": [trainer], **(pod or {})}
    return {"command": [str(BROKEN), *arguments], "podTemplate": {"spec": spec}, **more}


def memory(limit):
    return {"resources": {"limits": {"memory": limit}}}


FAILURES = {
    # name: what it launches, what its Failed condition must say
    "no-entrypoint": (
        launch("hang", env=[{"name": "PATH", "value": "/nowhere"}]),
        ("StartError", "executable", "without a new step"),
    ),
    "exit-64": (launch("exit", "64"), ("code 64", "no retry")),
    "segfault": (
        launch("segfault"),
        ("signal 11 (SIGSEGV)", "without a new step", "the last line of the worker"),
    ),
    "worker-memory": (launch("memory", trainer=memory("1500Mi")), ("OOMKilled",)),
    "pod-memory": (launch("hang", trainer=memory("60Mi")), ("OOMKilled", "without a new step")),
    "never-trains": (launch("hang", startTimeout="40s"), ("StartTimeout", "no training step within 40s")),
}


def test_each_failure_ends_in_its_real_cause_and_frees_its_gpus(start, cluster):
    began = time.monotonic()
    runs = {
        name: start(metadata={"name": name}, launch=what, resources=ONE)
        for name, (what, _) in FAILURES.items()
    }
    for name, run in runs.items():
        run.until("Failed", within_s=240)
        failed = run.condition("Failed")
        LOG.info(
            f"{name} failed after {time.monotonic() - began:.0f} s: {failed['reason']}: {failed['message']}"
        )
    for name, run in runs.items():
        failed = run.condition("Failed")
        said = f"{failed['reason']}: {failed['message']}"
        assert all(words in said for words in FAILURES[name][1]), said
        assert "\x1b" not in said
        assert len(said) < 3000
        live = lambda: [p for p in run.pods() if p["status"]["phase"] in {"Pending", "Running"}]  # noqa: B023
        cluster.wait(f"no pod of {name} holds a GPU", lambda: not live())  # noqa: B023
    failures = runs["pod-memory"].status["failures"]
    assert [failure["exitCode"] for failure in failures] == [137] * 3


def idle(**more):
    """Workers that would do nothing, if they could run."""
    return launch("hang", **IDLE | more)


def claim(name):
    volume = {"name": "checkpoints", "persistentVolumeClaim": {"claimName": name}}
    return idle(pod={"volumes": [volume]})


PENDING = {
    # name: what it launches, the reason, words of the message
    "no-cpu": (
        idle(trainer={"resources": {"requests": {"cpu": "900"}}}),
        "Unschedulable",
        "Insufficient cpu",
    ),
    "no-claim": (claim("absent"), "VolumeClaim", "absent"),
    "no-image": (idle(image="registry.invalid/none:1"), "ImagePull", "registry.invalid"),
    "no-key": (
        idle(env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k"}}}]),
        "ContainerError",
        'secret "absent" not found',
    ),
    "no-account": (idle(pod={"serviceAccountName": "absent"}), "FailedCreate", "serviceaccount"),
    "no-quota": (idle(), "QuotaExceeded", "exceeded quota"),
    "not-allowed": (idle(pod={"hostNetwork": True}), "AdmissionDenied", "PodSecurity"),
}


def waited_s(run, reason):
    """Seconds from a plan's creation to the Event of this reason."""
    events = run.api("GET", f"/api/v1/namespaces/{run.namespace}/events?fieldSelector=reason={reason}")[
        "items"
    ]
    own = [event for event in events if event["involvedObject"]["name"] == run.name]
    made = run.api.get("tp", run.name, namespace=run.namespace)["metadata"]["creationTimestamp"]
    said = min(event["firstTimestamp"] for event in own)
    return (dt.datetime.fromisoformat(said) - dt.datetime.fromisoformat(made)).total_seconds()


@pytest.fixture
def strict_namespaces(api, new_namespace):
    """A namespace without room for a pod, and one whose pod security standard is `baseline`."""
    quota, baseline = new_namespace("quota"), new_namespace("baseline")
    hard = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    api("POST", f"/api/v1/namespaces/{quota}/resourcequotas", hard)
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    api.patch(f"/api/v1/namespaces/{baseline}", label)
    return {"no-quota": quota, "not-allowed": baseline}


def test_what_keeps_workers_from_running_is_the_state_within_seconds(
    start, cluster, api, strict_namespaces, rightsizer
):
    runs = {}
    for name, (what, _, _) in PENDING.items():
        where = {"namespace": strict_namespaces[name]} if name in strict_namespaces else {}
        runs[name] = start(metadata={"name": name}, launch=what, resources=ONE, **where)
    for name, run in runs.items():
        run.until(PENDING[name][1], within_s=60)
    for name, run in runs.items():
        _, reason, words = PENDING[name]
        message = run.condition("Ready")["message"]
        assert words in message, message
        events = f"/api/v1/namespaces/{run.namespace}/events?fieldSelector=reason={reason},type=Warning"
        cluster.wait("an Event", lambda path=events: api("GET", path)["items"], within_s=10)
        LOG.info(f"{name} is {reason} {waited_s(run, reason):.0f} s after its creation")
        explained = rightsizer(run, "why", run.name)
        assert words in explained
        assert "Next: nothing." not in explained


def test_a_run_survives_a_forged_status_counts_its_killed_worker_and_completes_with_its_last_numbers(
    start, cluster, api
):
    run = start(workload={"tokens": "240k"})
    run.steps_with(2)
    (job,) = api.get("jobs", namespace=run.namespace)["items"]
    path = f"/apis/rightsizer.dev/v1alpha1/namespaces/{run.namespace}/trainingplans/{run.name}/status"
    api.patch(
        path, {"status": {"attempt": {"number": 7, "gpus": 2}, "failures": [], "observedGeneration": 1}}
    )
    cluster.wait("the attempt again", lambda: run.status["attempt"]["number"] == 1, within_s=30)
    victim = run.pods()[1]["metadata"]["name"]
    run.kubectl("exec", victim, "--", "pkill", "-9", "-f", "[-]u .*/paced.py")
    states = set()

    def complete():
        states.add(f"{run.state}: {run.condition('Ready')['message']}")
        return run.state == "Complete"

    cluster.wait("Complete", complete, within_s=240)
    LOG.info(f"states: {sorted(states)}; observed {run.status['observed']}")
    assert not [state for state in states if state.startswith("Recovering: 0 of 2")]
    assert run.status["observed"]["progress"] == 1.0
    assert run.status["observed"]["restarts"] >= 1
    run.patch(deadline={"finishWithin": "1h"})
    cluster.wait("the new spec is observed", lambda: run.status["observedGeneration"] == 2, within_s=30)
    time.sleep(3)
    jobs = api.get("jobs", namespace=run.namespace)["items"]
    assert [each["metadata"]["uid"] for each in jobs] == [job["metadata"]["uid"]]
    assert run.state == "Complete"


def test_an_inline_model_cannot_change(plan, api):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"vocab_size": 256, "intermediate_size": 128}
    run = plan(suspend=True)
    run.document["spec"]["model"] = {"config": config}
    run.start()
    run.patch(deadline={"finishWithin": "90h"})  # the same config is no change
    with pytest.raises(Exception, match="the model cannot change"):
        run.patch(model={"config": {"hidden_size": 128}})
