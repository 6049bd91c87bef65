"""Install, upgrade and uninstall, in the order of docs/install.md, on a cluster of their own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from charts import helm_at
from planrun import Run

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]

CHART = Path(__file__).resolve().parents[3] / "helm" / "rightsizer"
SYSTEM = "rightsizer-system"
CRD = "trainingplans.rightsizer.dev"
NEW = "startedAt"  # a field that the older CRD does not have
WAIT = ("--wait", "--timeout=900s")
INSTALL = ("install", "rightsizer", CHART, f"--namespace={SYSTEM}", "--create-namespace", *WAIT)


@pytest.fixture(scope="module")
def own(control, cluster):
    """A cluster that no other test installs into: the CRD comes and goes here."""
    name = f"{cluster.name[:9]}own"
    kubeconfig = control(name, "up", nodes=2).stdout.removeprefix("export KUBECONFIG=").strip()
    yield type(cluster)(name=name, kubeconfig=Path(kubeconfig), kubectl_path=cluster.kubectl_path)
    control(name, "down", nodes=2)


@pytest.fixture(scope="module")
def helm(own):
    """helm(...) there; its error output if it fails."""
    helm_there = helm_at(own)

    def run(*arguments):
        done = helm_there(*arguments)
        return done.stderr if done.returncode else ""

    return run


@pytest.fixture(scope="module")
def run(own):
    """A plan there."""
    own.kubectl("create", "namespace", "team")
    yield Run(own, own.api, "team")
    own.api.close()


def printed_crd():
    command = Path(sys.executable).with_name("rightsizer")
    return subprocess.run([command, "crd"], check=True, capture_output=True, text=True).stdout


def apply_crd(own, *options):
    own.kubectl("apply", *options, "--filename=-", text=printed_crd())


def fields(own):
    """The fields of a plan's status that the API server knows."""
    schema = own.api.get("crd", CRD, namespace=None)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema["properties"]["status"]["properties"].keys()


@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_helm_installs_beside_the_crd_that_the_program_printed(own, helm, options):
    apply_crd(own, *options)
    assert not helm(*INSTALL)
    assert not helm("uninstall", "rightsizer", f"--namespace={SYSTEM}", "--wait")
    own.kubectl("delete", "crd", CRD)


def test_an_older_crd_of_helm_is_replaced_by_the_documented_command_only(own, helm, tmp_path):
    shutil.copytree(CHART, tmp_path / "older")
    path = tmp_path / "older/crds/trainingplans.rightsizer.dev.yaml"
    text = path.read_text()
    path.write_text(text.replace(f"{NEW}:", "beganAt:"))
    assert path.read_text() != text
    older = tuple(tmp_path / "older" if part == CHART else part for part in INSTALL)
    assert not helm(*older)
    assert not helm("upgrade", "rightsizer", CHART, f"--namespace={SYSTEM}", *WAIT)
    assert NEW not in fields(own)  # Helm leaves a chart's CRDs alone when it upgrades
    with pytest.raises(RuntimeError, match='conflict with "helm"'):
        apply_crd(own, "--server-side")
    apply_crd(own, "--server-side", "--force-conflicts")
    assert NEW in fields(own)
    assert not helm("uninstall", "rightsizer", f"--namespace={SYSTEM}", "--wait")
    assert 'conflict with "kubectl"' in helm(*older)
    assert not helm(*older, "--skip-crds")
    assert NEW in fields(own)


def test_an_upgrade_of_the_operator_does_not_touch_a_training(own, helm, run):
    run.start().steps_with(2)
    pods = {pod["metadata"]["uid"] for pod in run.pods()}
    options = ("--set=replicas=2", "--set=logFormat=json")
    assert not helm("upgrade", "rightsizer", CHART, f"--namespace={SYSTEM}", "--skip-crds", *WAIT, *options)
    step, *_ = run.last()
    own.wait("more steps", lambda: run.last()[0] > step)
    assert {pod["metadata"]["uid"] for pod in run.pods()} == pods
    assert own.api.get("pdb", "rightsizer", namespace=SYSTEM)["spec"]["maxUnavailable"] == 1
    pods = own.api.get("pods", namespace=SYSTEM, selector="app.kubernetes.io/component=operator")["items"]
    current = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    assert len(current) == 2
    lines = [line for name in current for line in own.logs(name, SYSTEM).splitlines()]
    assert all({"time", "level", "message"} <= json.loads(line).keys() for line in lines)


def test_an_uninstall_leaves_plans_training_and_lists_what_else_remains(own, helm, run):
    pods = {pod["metadata"]["uid"] for pod in run.pods()}
    assert not helm("uninstall", "rightsizer", f"--namespace={SYSTEM}", "--wait")
    step, *_ = run.last()
    own.wait("more steps", lambda: run.last()[0] > step)
    assert {pod["metadata"]["uid"] for pod in run.pods()} == pods
    left = own.kubectl(
        "get", "deployments,services,leases,serviceaccounts", f"--namespace={SYSTEM}", "--output=name"
    )
    assert left.split() == ["lease.coordination.k8s.io/rightsizer-operator", "serviceaccount/default"]
    roles = "clusterroles,clusterrolebindings,validatingadmissionpolicies"
    assert f"{SYSTEM}-rightsizer" not in own.kubectl("get", roles, "--output=name")


def test_a_new_installation_takes_the_plans_over_and_can_be_removed_again(helm, run):
    assert not helm(*INSTALL, "--skip-crds")
    run.patch(suspend=True)
    run.until("Suspended")
    run.patch(suspend=False)
    run.until("Running")
    assert run.jobs == [f"{run.name}-a1"]
    assert not helm("uninstall", "rightsizer", f"--namespace={SYSTEM}", "--wait")


def test_without_the_operator_plans_go_with_their_crd_and_leave_their_checkpoints(own, run):
    own.kubectl("delete", "crd", CRD, "--timeout=60s")

    def left():
        what = "jobs,pods,services,replicasets,networkpolicies,configmaps,secrets"
        names = run.kubectl("get", what, "--output=name").split()
        return [name for name in names if run.name in name]

    own.wait("nothing of the plan is left", lambda: not left(), within_s=120)
    assert run.kubectl("get", "pvc", "--output=name")
