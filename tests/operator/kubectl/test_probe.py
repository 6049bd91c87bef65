"""`kubectl rightsizer probe` against a pretended kubectl: what it creates, believes and deletes."""

import copy
import datetime as dt
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.operator.kubectl.conftest import Where

from rightsizer_api import reporting, validate
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.size import size
from rightsizer_launch.running.probe import Interrupted, probe_of
from rightsizer_launch.running.probe_plan import ProbeRequest
from rightsizer_operator.kubectl.client import Client
from rightsizer_operator.kubectl.probe import KubernetesProbe
from rightsizer_operator.reconcile.size import cluster_request
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode

NODE = {
    "metadata": {
        "name": "n1",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"},
    },
    "spec": {},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
PLAN = {
    "apiVersion": "rightsizer.dev/v1alpha1",
    "kind": "TrainingPlan",
    "metadata": {"name": "demo", "namespace": "nlp"},
    "spec": {
        "model": {"name": "gpt2"},
        "workload": {"tokens": "1B"},
        "deadline": {"finishWithin": "12h"},
        "launch": {"framework": "ddp", "image": "train:1", "command": ["train.py"]},
    },
}


class Cluster:
    """A kubectl with an operator that measures: every look sees 20 more steps."""

    def __init__(self, *, step_s=0.5, state="Running", layout=None, interrupted=False):
        self.step_s, self.state, self.layout, self.interrupted = step_s, state, layout, interrupted
        self.created, self.deleted, self.looks, self.answer = [], [], 0, None

    def __call__(self, arguments):
        verb = next(word for word in arguments if not word.startswith("-"))
        if verb == "create":
            (path,) = [word.partition("=")[2] for word in arguments if word.startswith("--filename=")]
            self.created.append(yaml.safe_load(Path(path).read_text()))
        if verb == "delete":
            self.deleted.append(arguments[-3])
        document = {}
        if verb == "get":
            document = {"items": [NODE]} if "nodes" in arguments else self._live()
        return subprocess.CompletedProcess(arguments, 0, json.dumps(document), "")

    def _observed(self):
        step = 20 * self.looks
        if not isinstance(self.step_s, float):
            return {"step": self.step_s, "updatedAt": "2026-11-21T10:01:00Z"}
        at = dt.datetime(2026, 11, 21, 10, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=step * self.step_s)
        return {"step": step, "updatedAt": at.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def _live(self):
        if self.interrupted:
            raise KeyboardInterrupt
        self.looks += 1
        raw = copy.deepcopy(self.created[-1])
        raw["metadata"] |= {"uid": "u1", "generation": 1, "creationTimestamp": "2026-11-21T10:00:00Z"}
        self.answer = self.answer or sized(validate(raw))
        condition = {"type": "Ready", "status": "True", "reason": self.state, "message": "so"}
        raw["status"] = {
            "conditions": [condition | {"lastTransitionTime": "2026-11-21T10:00:00Z"}],
            "sizing": self.answer | ({"layoutText": self.layout} if self.layout else {}),
            "attempt": {
                "number": 1,
                "gpus": self.answer["gpus"],
                "jobName": "demo-a1",
                "startedAt": "2026-11-21T10:00:00Z",
                "trainedAt": "2026-11-21T10:00:42Z",
            },
            "observed": self._observed() if self.step_s else {},
        }
        return raw


def inventory():
    return Inventory(nodes=(ClusterNode.of(NODE),))


def request_of(plan):
    return cluster_request(plan, inventory=inventory(), created=dt.datetime.now(dt.UTC))


def sized(plan):
    return reporting.report(size(request_of(plan))).model_dump(mode="json", by_alias=True, exclude_none=True)


def measured(cluster):
    """The measurements and the output of the probe of PLAN in that cluster."""
    said, plan, now_s = [], validate(PLAN), [0.0]

    def sleep(seconds):
        now_s[0] += seconds

    client = Client(where=Where(namespace="nlp"), run=cluster)
    executor = KubernetesProbe(client=client, say=said.append, sleep=sleep, clock=lambda: now_s[0])
    answer = executor.answer(plan)
    wanted = ProbeRequest(
        plan=plan,
        target=answer.option,
        request=answer.request,
        clusters=tuple(executor.clusters),
        limit_s=300.0,
        tag="-x",
    )
    return executor.measure(probe_of(wanted)), said


def test_a_probe_is_created_measured_from_its_status_and_deleted():
    cluster = Cluster()
    (found,), said = measured(cluster)
    (created,) = cluster.created
    assert (created["metadata"]["name"], created["spec"]["activeDeadline"]) == ("demo-probe-x", "300s")
    assert "deadline" not in created["spec"]
    assert created["spec"]["ttlAfterFinished"] == "1h", "deleted even if nobody waits for it any more"
    assert (found.steps, found.step_s, found.start_s) == (120, 0.5, 42.0)
    assert cluster.deleted == ["demo-probe-x"]
    assert any(line.startswith("Running") for line in said)


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (Cluster(step_s=0.0), "too few steps"),
        (Cluster(step_s=0.0, state="Failed"), "failed before"),
        (Cluster(layout="TP 8"), "another version"),
        (Cluster(step_s=-1), "step"),
        (Cluster(step_s="fast"), "step"),
    ],
    ids=["never a step", "failed", "sized otherwise", "impossible", "no number"],
)
def test_what_measures_nothing_is_one_error_and_deleted(cluster, words):
    with pytest.raises(InputError, match=words):
        measured(cluster)
    assert cluster.deleted == ["demo-probe-x"]


def test_ctrl_c_deletes_the_probe():
    cluster = Cluster(interrupted=True)
    with pytest.raises(Interrupted):
        measured(cluster)
    assert cluster.deleted == ["demo-probe-x"]
