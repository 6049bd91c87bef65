"""A plan in a namespace of its own, and what can be seen of it."""

import json
from pathlib import Path

import yaml

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "02-kubernetes"
PACED = Path(__file__).with_name("paced.py")
PACED_EXAMPLE = PACED.with_name("paced_example.py")
IDLE = {"image": "ghcr.io/acme/idle:1.0"}
"""A launch whose pods hold their GPUs and train nothing: tests that look at no step start no torch."""
PLANS = "/apis/rightsizer.dev/v1alpha1/namespaces/{}/trainingplans"
# where a kubelet of the test cluster keeps what a worker writes: read there, it costs no `kubectl exec`
PROGRESS = "own/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/rightsizer-run/progress.jsonl"


def laid(base, over):
    """`over` merged into `base`."""
    for key, value in over.items():
        base[key] = laid(base.get(key) or {}, value) if isinstance(value, dict) else value
    return base


class Run:
    """The example's plan with changes, without an end."""

    def __init__(self, cluster, api, namespace, *, metadata=None, **spec):
        self.cluster, self.api, self.namespace = cluster, api, namespace
        self.document, self.claim = yaml.safe_load_all((EXAMPLE / "plan.yaml").read_text())
        endless = {"workload": {"tokens": "100M"}, "deadline": {"finishWithin": "100h"}}
        laid(self.document["spec"], endless | {"launch": {"command": [str(PACED)]}})
        laid(self.document["spec"], spec)
        laid(self.document["metadata"], metadata or {})
        self.name = self.document["metadata"]["name"]

    def start(self):
        self.cluster.apply(yaml.safe_dump_all([self.claim, self.document]), self.namespace)
        return self

    def patch(self, **spec):
        document = json.dumps({"spec": spec})
        self.kubectl("patch", "tp", self.name, "--type=merge", f"--patch={document}")

    def kubectl(self, *arguments):
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments)

    @property
    def status(self):
        return self.api.get("tp", self.name, namespace=self.namespace).get("status", {})

    def condition(self, kind):
        found = (c for c in self.status.get("conditions", ()) if c["type"] == kind)
        return next(found, {"status": None, "reason": None, "message": ""})

    @property
    def state(self):
        return self.condition("Ready")["reason"]

    @property
    def jobs(self):
        return [job["metadata"]["name"] for job in self.api.get("jobs", namespace=self.namespace)["items"]]

    def pods(self, role="worker"):
        """Those that are not on their way out."""
        selector = f"rightsizer.dev/role={role},rightsizer.dev/plan={self.name}"
        pods = self.api.get("pods", namespace=self.namespace, selector=selector)["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def records(self):
        """The records of rank 0 from all of its pods, oldest first, with the pod's name."""
        found = []
        for pod in self.pods():
            path = self.cluster.kubeconfig.parent / pod["spec"].get("nodeName", "")
            path /= PROGRESS.format(pod["metadata"]["uid"])
            text = path.read_text() if path.exists() else ""
            whole = text[: text.rfind("\n") + 1].splitlines()
            found += [(json.loads(line), pod["metadata"]["name"]) for line in whole]
        return sorted(found, key=lambda record: record[0]["time"])

    def started(self, after=0.0):
        """The first time that workers began to train after `after`; None: they have not."""
        starts = (r for r, _ in self.records() if r["event"] == "start" and r["time"] > after)
        return next(starts, None)

    def last(self):
        """The newest step: its number and the number of workers that made it."""
        steps = [record for record, _ in self.records() if record["event"] == "step"]
        return (steps[-1]["step"], steps[-1]["world"], steps[-1]["time"]) if steps else (0, 0, 0.0)

    def steps_with(self, world, after=0.0, within_s=180):
        """Wait for a step of so many workers, later than `after` (seconds since the epoch)."""
        made = (0, 0, 0.0)

        def there():
            nonlocal made
            made = self.last()
            return made[1] == world and made[2] > after

        self.cluster.wait(f"a step of {world} workers", there, within_s=within_s)
        return made

    def until(self, state, within_s=180):
        self.cluster.wait(f"state {state}, not {self.state}", lambda: self.state == state, within_s=within_s)
        return self
