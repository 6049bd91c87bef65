import copy
import dataclasses
import datetime as dt
import json
import re

import pytest

from rightsizer_api.state import State
from rightsizer_api.status import Status
from rightsizer_operator.reconcile.reconcile import reconcile
from rightsizer_operator.values.actions import Apply, Delete, EmitEvent, PatchJob, PatchPlan, PatchStatus
from rightsizer_operator.values.carriers import job_within
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_operator.values.requests import Loads
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.snapshot import AttemptJob, Snapshot

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
SPEC = {
    "model": {"dimensions": {"layers": 4, "hidden": 192, "ffnHidden": 512, "heads": 4, "vocab": 256}},
    "workload": {"tokens": "10M", "sequenceLength": 128, "globalBatchSequences": 24, "precision": "fp32"},
    "deadline": {"finishWithin": "2h"},
    "resources": {"minGPUs": 1, "maxGPUs": 4, "gpus": 2, "gpusPerNode": 1},
    "layout": {"microBatch": 1},  # divides over any number of workers, so that they may come and go in place
    "launch": {
        "framework": "ddp",
        "image": "ghcr.io/acme/train:1.4",
        "command": ["train.py"],
        "checkpoint": {"path": "/ckpt"},
    },
}


def merged(base, over):
    """A deep copy of `base` with `over` laid over it; None removes."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


class FakeCluster:
    """A minimal cluster: it stores what actions create; tests set the Jobs' status."""

    def __init__(self, spec=SPEC, *, nodes=3, gpus=8, inventory=None):
        self.plan = {
            "apiVersion": "rightsizer.dev/v1alpha1",
            "kind": "TrainingPlan",
            "metadata": {
                "name": "demo",
                "namespace": "team",
                "uid": "uid-1",
                "generation": 1,
                "creationTimestamp": "2026-11-21T12:00:00Z",
            },
            "spec": copy.deepcopy(spec),
        }
        self.nodes = [
            ClusterNode(name=f"n{i}", product="NVIDIA-H100-80GB-HBM3", gpus=gpus) for i in range(nodes)
        ]
        self.inventory = inventory
        self.jobs, self.children, self.events, self.log = {}, set(), [], []
        self.now, self.pods, self.progress, self.quota = NOW, (), None, None
        self.decision, self.samples = None, ()
        self.settings = OperatorSettings()
        self.queue, self.workloads, self.warnings = None, (), ()
        self.loads, self.allowance = Loads(), None
        self.rendezvous_ready = True

    def snapshot(self):
        return Snapshot(
            plan=copy.deepcopy(self.plan),
            inventory=self.inventory or Inventory(nodes=tuple(self.nodes), loads=self.loads),
            now=self.now,
            settings=self.settings,
            jobs=tuple(AttemptJob.within({"kind": "Job", **job}) for job in self.jobs.values()),
            pods=self.pods,
            children=frozenset(self.children),
            rendezvous_ready=self.rendezvous_ready,
            quota_gpus=self.quota,
            allowance=self.allowance,
            queue=self.queue,
            workloads=self.workloads,
            warnings=self.warnings,
            progress=self.progress,
            decision=self.decision,
            samples=self.samples,
        )

    def decide(self):
        return reconcile(self.snapshot())

    def execute(self, action):
        self.log.append(action)
        if isinstance(action, PatchStatus):
            Status.model_validate_json(json.dumps(action.status))  # a wire key that the CRD lacks is an error
            assert State.of(next(c["reason"] for c in action.status["conditions"] if c["type"] == "Ready"))
            self.plan["status"] = json.loads(json.dumps(action.status))
        elif isinstance(action, Apply) and job_within(action.child):
            assert action.child["metadata"]["name"] not in self.jobs, "a Job is never applied twice"
            self.jobs[action.child["metadata"]["name"]] = copy.deepcopy(dict(action.child))
        elif isinstance(action, Apply) and action.child["kind"] != "Secret":
            self.children.add(f"{action.child['kind']}/{action.child['metadata']['name']}")
        elif isinstance(action, PatchJob):
            self.jobs[action.name]["spec"].update(action.spec)
            self.jobs[action.name]["metadata"].setdefault("annotations", {}).update(action.annotations)
        elif isinstance(action, PatchPlan):
            self.edit(**action.spec)
        elif isinstance(action, Delete):
            self._delete(action)
        elif isinstance(action, EmitEvent):
            self.events.append(action)

    def _delete(self, action):
        if action.kind == "Job":
            self.jobs.pop(action.name, None)
        elif action.kind == "Pod":
            self.pods = tuple(pod for pod in self.pods if pod.name != action.name)
        elif action.kind == "TrainingPlan":
            assert action.uid == self.plan["metadata"]["uid"]
            self.plan["metadata"]["deletionTimestamp"] = self.now.isoformat()
        else:
            self.children.discard(f"{action.kind}/{action.name}")

    def settle(self, passes=10):
        """Reconcile and execute until only requeues are left."""
        for _ in range(passes):
            actions = [action for action in self.decide() if not hasattr(action, "after_s")]
            if not actions:
                return self
            for action in actions:
                self.execute(action)
        raise AssertionError(f"never settles: {actions}")

    def edit(self, **spec):
        self.plan["spec"] = merged(self.plan["spec"], spec)
        self.plan["metadata"]["generation"] += 1
        return self

    def job(self, attempt=1, **status):
        """The attempt's Job, with this status merged in."""
        job = self.jobs[f"demo-a{attempt}"]
        job.setdefault("status", {}).update(status)
        return job

    def ends(self, kind, attempt=1, **more):
        condition = {"type": kind, "status": "True", "lastTransitionTime": "2026-11-21T12:30:00Z", **more}
        self.job(attempt, conditions=[condition], ready=0)
        return self

    def condition(self, kind):
        matches = (c for c in self.plan.get("status", {}).get("conditions", ()) if c["type"] == kind)
        return next(matches, {"status": None, "reason": None, "message": ""})

    @property
    def state(self):
        return self.condition("Ready")["reason"]

    @property
    def pending(self):
        return [job for job in self.jobs.values() if not job.get("status", {}).get("conditions")]

    def later(self, **delta):
        self.now += dt.timedelta(**delta)
        return self

    def change_node(self, index, **fields):
        self.nodes[index] = dataclasses.replace(self.nodes[index], **fields)
        return self


@pytest.fixture
def fake_cluster():
    """A new cluster with a plan: fake_cluster(), or fake_cluster({"resources": {...}}) to change its spec."""

    def make(change=None, **cluster):
        return FakeCluster(merged(SPEC, change or {}), **cluster)

    return make


class FakeApi:
    """A stand-in for kubernetes.aio's ApiClient: objects by path, as an API server keeps them.

    `refuse` maps (method, end of path) to the refusals that come next: (status, body, headers), or an error.
    """

    def __init__(self):
        self.objects, self.requests, self.refuse, self.version = {}, [], {}, 0
        self.told = lambda _path, _thing: None

    def put(self, path, thing):
        self.version += 1
        old = self.objects.get(path, {}).get("metadata", {})
        made = {"uid": f"uid-{self.version}", "name": path.rpartition("/")[2]} | old | thing["metadata"]
        self.objects[path] = {**thing, "metadata": made | {"resourceVersion": str(self.version)}}
        self.told(path, self.objects[path])
        return self.objects[path]

    async def param_serialize(self, method, path, *, query_params, header_params, auth_settings):
        assert auth_settings == ["BearerToken"]
        return method, path, {**header_params, "query": dict(query_params)}, None, None

    async def call_api(self, method, path, headers, body, *, _request_timeout):
        query = headers["query"]
        self.requests.append((method, path, query))
        for (refused, end), answers in self.refuse.items():
            if method == refused and path.endswith(end) and answers:
                answer = answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return FakeAnswer(*answer)
        status, found = getattr(self, f"_{method.lower()}")(path, query, copy.deepcopy(body))
        return FakeAnswer(status, json.dumps(found).encode())

    def _get(self, path, query, _body):
        if path in self.objects:
            return 200, self.objects[path]
        head, plural = path.rpartition("/")[::2]
        if plural not in PLURALS:
            return 404, {"message": "not found"}
        below = [p for p in sorted(self.objects) if p.startswith(head) and p.split("/")[-2] == plural]
        items = [self.objects[p] for p in below if selected(self.objects[p], query)]
        at = int(query.get("continue", 0))
        page, more = items[at : at + 2], at + 2 < len(items)  # small pages, so that lists have several
        return 200, {"items": page or None, "metadata": {"continue": str(at + 2)} if more else {}}

    def _post(self, path, query, body):
        address = f"{path}/{body['metadata']['name']}"
        if address in self.objects:
            return 409, {"message": "already exists"}
        return 201, body if query.get("dryRun") else self.put(address, body)

    def _patch(self, path, query, body):
        path = path.removesuffix("/status")
        if path not in self.objects:
            return 404, {"message": "not found"}
        there = self.objects[path]
        stale = body.get("metadata", {}).pop("resourceVersion", None)
        if stale not in (None, there["metadata"]["resourceVersion"]):
            return 409, {"message": "the object has been modified"}
        return 200, there if query.get("dryRun") else self.put(path, merged(there, body))

    def _put(self, path, _query, body):
        return 200, self.put(path, body)

    def _delete(self, path, _query, _body):
        return (200, self.objects.pop(path)) if path in self.objects else (404, {"message": "not found"})


PLURALS = (
    "nodes", "pods", "jobs", "services", "configmaps", "secrets", "networkpolicies", "replicasets",
    "trainingplans", "resourcequotas", "limitranges", "events", "customresourcedefinitions",
)  # fmt: skip


def selected(thing, query):
    """Label selectors `a=b`, `a in (b,c)`, `a`, `!a`, and the field selector metadata.name."""
    labels, name = thing["metadata"].get("labels", {}), query.get("fieldSelector", "")
    if name.startswith("metadata.name=") and name != f"metadata.name={thing['metadata']['name']}":
        return False
    selector = query.get("labelSelector", "")
    if not selector:
        return True
    return all(matches(part, labels) for part in re.split(r",(?![^(]*\))", selector))


def matches(part, labels):
    """One requirement of a label selector."""
    if " in " in part:
        key, values = part.split(" in ")
        return labels.get(key) in values.strip("()").split(",")
    if "=" in part:
        key, value = part.split("=")
        return labels.get(key) == value
    return (part.lstrip("!") in labels) is not part.startswith("!")


class FakeAnswer:
    """An answer of that API server."""

    def __init__(self, status, body, headers=None):
        self.status, self._body, self._headers = status, body, headers or {}

    async def read(self):
        return self._body

    def getheaders(self):
        return self._headers


@pytest.fixture
def fake_api():
    return FakeApi()
