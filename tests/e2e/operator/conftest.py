"""The operator as users run it: installed by Helm, in a pod; and a plan that trains as long as it is let."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).with_name("harness")))
from outside import Api, Outside

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLE = REPOSITORY / "examples" / "02-kubernetes"
SYSTEM = "rightsizer-system"


def _laid(base, over):
    for key, value in over.items():
        base[key] = _laid(base.get(key) or {}, value) if isinstance(value, dict) else value
    return base


class Run:
    """A plan in a namespace of its own, and what can be seen of it."""

    def __init__(self, cluster, namespace, *, metadata=None, **spec):
        self.cluster, self.namespace = cluster, namespace
        self.document, self.claim = yaml.safe_load_all((EXAMPLE / "plan.yaml").read_text())
        _laid(self.document["spec"], {"workload": {"tokens": "100M"}, "deadline": {"finishWithin": "100h"}})
        _laid(self.document["spec"], spec)
        _laid(self.document["metadata"], metadata or {})
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
        return self.cluster.get("tp", self.name, namespace=self.namespace).get("status", {})

    def condition(self, kind):
        found = (c for c in self.status.get("conditions", ()) if c["type"] == kind)
        return next(found, {"status": None, "reason": None, "message": ""})

    @property
    def state(self):
        return self.condition("Ready")["reason"]

    @property
    def jobs(self):
        items = self.cluster.get("jobs", namespace=self.namespace)["items"]
        return [job["metadata"]["name"] for job in items]

    def pods(self, role="worker"):
        pods = self.cluster.get("pods", f"--selector=rightsizer.dev/role={role}", namespace=self.namespace)
        return [pod for pod in pods["items"] if "deletionTimestamp" not in pod["metadata"]]

    def records(self):
        """What rank 0 wrote, wherever it runs or ran, oldest first."""
        found = []
        for pod in self.pods():
            try:
                text = self.kubectl(
                    "exec", pod["metadata"]["name"], "--", "cat", "/var/run/rightsizer/progress.jsonl"
                )
            except RuntimeError:
                continue
            found += [(json.loads(line), pod["metadata"]["name"]) for line in text.splitlines() if line]
        return sorted(found, key=lambda record: record[0]["time"])

    def last(self):
        """The newest step: its number and the number of workers that made it."""
        steps = [record for record, _ in self.records() if record["event"] == "step"]
        return (steps[-1]["step"], steps[-1]["world"], steps[-1]["time"]) if steps else (0, 0, 0.0)

    def steps_with(self, world, after=0.0, within_s=180):
        """Wait for a step of so many workers, later than `after` (seconds since the epoch)."""

        def there():
            _, workers, when = self.last()
            return workers == world and when > after

        self.cluster.wait(f"a step of {world} workers", there, within_s=within_s)
        return self.last()

    def until(self, state, within_s=180):
        self.cluster.wait(f"state {state}, not {self.state}", lambda: self.state == state, within_s=within_s)
        return self


@pytest.fixture(scope="session")
def helm(cluster):
    """helm(...) for the cluster."""
    path = cluster.control("tool", "helm").strip()

    def run(*arguments):
        argv = [path, f"--kubeconfig={cluster.kubeconfig}", *map(str, arguments)]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _scaled(cluster, replicas):
    cluster.kubectl("scale", "deployment", "rightsizer", f"--namespace={SYSTEM}", f"--replicas={replicas}")

    def there():
        pods = cluster.get("pods", namespace=SYSTEM)["items"]
        ready = [c["ready"] for pod in pods for c in pod["status"].get("containerStatuses", ())]
        return len(pods) == sum(ready) == replicas

    cluster.wait(f"{replicas} operators", there, within_s=180)


@pytest.fixture(scope="session")
def operator(cluster, helm):
    """The operator, installed as its documentation says, with a second replica that waits."""
    chart = REPOSITORY / "helm" / "rightsizer"
    helm(
        *("upgrade", "--install", "rightsizer", chart, "--namespace", SYSTEM, "--create-namespace"),
        *("--wait", "--timeout=900s", "--set", "replicas=2"),
    )
    _scaled(cluster, 2)  # a run that was killed may have left none, which Helm does not look at
    yield SYSTEM
    helm("uninstall", "rightsizer", "--namespace", SYSTEM, "--wait")


@pytest.fixture
def plan(cluster, operator, namespace):
    """plan(...): the example's plan with changes to its spec, not applied; it goes when the test ends.

    `metadata` changes that: another name makes a second plan in the same namespace.
    """
    runs = []

    def make(namespace=namespace, **spec):
        runs.append(Run(cluster, namespace, **spec))
        return runs[-1]

    yield make
    for run in runs:
        run.kubectl("delete", "tp", run.name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def start(plan):
    """start(...): the same, applied."""
    return lambda **spec: plan(**spec).start()


@pytest.fixture(scope="session")
def house(cluster, operator):
    """Where operators are started outside the cluster, with the chart's account and no more rights.

    Their logs stay in the machine's folder for temporary files until the next time.
    """
    folder = Path(tempfile.gettempdir()) / f"rightsizer-operators-{cluster.name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    token = cluster.kubectl(
        *("create", "token", "rightsizer", "--namespace", operator, "--duration=2h")
    ).strip()
    made = Outside(Api(cluster.kubeconfig), token, operator, folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(cluster, operator, house):
    """The house, while no operator acts in the cluster and no pod is scheduled: tests are the kubelet."""
    _scaled(cluster, 0)
    cluster.control("kill", "scheduler")
    yield house
    house.end_all()
    cluster.control("start", "scheduler")
    _scaled(cluster, 2)
