"""The operator as users run it: installed by Helm, in a pod; and a plan that trains as long as it is let."""

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).with_name("harness")))
from charts import helm_at
from outside import ExternalOperators
from planrun import Run

REPOSITORY = Path(__file__).resolve().parents[3]
SYSTEM = "rightsizer-system"
IMAGE = "ghcr.io/rightsizer/rightsizer"
IMAGE_ONLY = """
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: image-only}
handler: image-only
"""


@pytest.fixture(scope="session")
def helm(cluster):
    """helm(...) for the cluster."""
    helm_there = helm_at(cluster)

    def run(*arguments):
        done = helm_there(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


class InstalledOperator:
    """The operator from its image, installed as documented, with a standby replica.

    Its pods see nothing of this machine: they run what deploy/images made. It is scaled to zero for tests of
    external operators, and back only when the next test needs it.
    """

    def __init__(self, cluster, helm, image):
        self.cluster, self.inside = cluster, True
        archive, digest = image
        cluster.control("image", archive, IMAGE)
        cluster.apply(IMAGE_ONLY)
        chart = REPOSITORY / "helm" / "rightsizer"
        helm(
            *("upgrade", "--install", "rightsizer", chart, "--namespace", SYSTEM, "--create-namespace"),
            *("--wait", "--timeout=900s", "--set", f"replicas=2,image.digest={digest}"),
            *("--set", "runtimeClassName=image-only"),
        )
        self._scale(2)  # a run that was killed may have left none, which Helm does not look at

    def act_inside(self):
        """Run it in its pods."""
        if not self.inside:
            self._scale(2)
            self.inside = True

    def stay_outside(self):
        """No pod of it runs."""
        if self.inside:
            self._scale(0)
            self.inside = False

    def _scale(self, replicas):
        where = f"--namespace={SYSTEM}"
        self.cluster.kubectl("scale", "deployment", "rightsizer", where, f"--replicas={replicas}")

        def there():
            pods = self.cluster.api.get("pods", namespace=SYSTEM)["items"]
            ready = [c["ready"] for pod in pods for c in pod["status"].get("containerStatuses", ())]
            return len(pods) == sum(ready) == replicas

        self.cluster.wait(f"{replicas} operators", there, within_s=180)


@pytest.fixture(scope="session")
def operator_image(tmp_path_factory):
    """The file and the digest of the operator's image, made of this checkout."""
    out = tmp_path_factory.mktemp("images")
    argv = [sys.executable, "-m", "deploy.images.build", "operator", "--newest", "--out", out]
    built = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=REPOSITORY)
    assert built.returncode == 0, built.stderr
    _, digest, archive = built.stdout.split()
    return archive, digest


@pytest.fixture(scope="session")
def installed(cluster, helm, operator_image):
    """The operator, wherever it acts."""
    made = InstalledOperator(cluster, helm, operator_image)
    yield made
    made.act_inside()
    helm("uninstall", "rightsizer", "--namespace", SYSTEM, "--wait")


@pytest.fixture(scope="module")
def operator(installed):
    """The operator acts in its pods; their namespace."""
    installed.act_inside()
    return SYSTEM


@pytest.fixture
def plan(cluster, api, operator, namespace):
    """plan(...): the example's plan with changes to its spec, not applied; it goes when the test ends.

    `metadata` changes that: another name makes a second plan in the same namespace.
    """
    runs = []

    def make(namespace=namespace, **spec):
        runs.append(Run(cluster, api, namespace, **spec))
        return runs[-1]

    yield make
    for run in runs:
        run.kubectl("delete", "tp", run.name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def rightsizer(cluster):
    """rightsizer(run, *arguments): what it prints; its exit code is 0, or the one that is expected."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

    def call(run, *arguments, code=0):
        argv = [cluster.kubectl_path, "rightsizer", *arguments, f"--namespace={run.namespace}"]
        settings = {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
        done = subprocess.run(argv, check=False, capture_output=True, text=True, env=settings)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return call


@pytest.fixture
def start(plan):
    """start(...): the same, applied."""
    return lambda **spec: plan(**spec).start()


@pytest.fixture(scope="module")
def shared_run(request, cluster, api, operator, common):
    """A plan that the tests of a module share, because a launch takes seconds.

    SHARED_RUN of the module is merged into the example's spec.
    """
    run = Run(cluster, api, common, **getattr(request.module, "SHARED_RUN", {})).start()
    run.steps_with(2)
    yield run
    run.kubectl("delete", "tp", run.name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="session")
def operators(cluster, api, installed):
    """Starts operators outside the cluster, with the chart's service account.

    Their logs stay in the temporary folder until the next run.
    """
    folder = Path(tempfile.gettempdir()) / f"rightsizer-operators-{cluster.name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    token = cluster.kubectl(
        *("create", "token", "rightsizer", "--namespace", SYSTEM, "--duration=2h")
    ).strip()
    made = ExternalOperators(api, token, SYSTEM, folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(cluster, installed, operators):
    """External operators only: none runs in the cluster, and the tests act as scheduler and kubelet."""
    installed.stay_outside()
    cluster.control("kill", "scheduler")
    yield operators
    operators.end_all()
    cluster.control("start", "scheduler")


@pytest.fixture(scope="module")
def new_namespace(cluster, api):
    """new_namespace(name): a namespace in which external operators may hold a Lease."""
    made = []

    def make(name):
        here = f"test-{name}-{uuid.uuid4().hex[:6]}"
        api("POST", "/api/v1/namespaces", {"metadata": {"name": here}})
        made.append(here)
        rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
        role = {"metadata": {"name": "lease"}, "rules": [rule | {"verbs": ["get", "create", "update"]}]}
        account = {"kind": "ServiceAccount", "name": "rightsizer", "namespace": SYSTEM}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lease"}
        binding = {"metadata": {"name": "lease"}, "roleRef": reference, "subjects": [account]}
        root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{here}"
        api("POST", f"{root}/roles", role)
        api("POST", f"{root}/rolebindings", binding)
        return here

    yield make
    for name in made:
        cluster.kubectl("delete", "namespace", name, "--wait=false")
