"""docs/install.md, Kubernetes, from the first block to the last, with the release's chart and image."""

import json

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]
IMAGE_ONLY = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "image-only"},
    "handler": "image-only",
}
"""Other containers of the tests' nodes see this machine's /usr in place of their image's."""
HELM = """\
#!/bin/sh
[ "$1" = install ] && set -- "$@" --set runtimeClassName=image-only
exec {helm} "$@"
"""
KINDS = "namespaces,crds,clusterroles,clusterrolebindings,validatingadmissionpolicies"
EVERYTHING = f"kubectl get {KINDS} --output=name"
OPERATOR = ("deployment/rightsizer", "--namespace=rightsizer-system", "--output=jsonpath={..image}")


@pytest.fixture
def own(control, release):
    """A cluster that no other test installs into; its nodes have the release's image, and no registry."""
    name = "install"
    kubeconfig = control(name, "up", nodes=2).stdout.removeprefix("export KUBECONFIG=").strip()
    control(name, "archive", str(release / "operator.tar"), nodes=2)
    yield kubeconfig
    control(name, "down", nodes=2)


@pytest.fixture
def admin(shell, own, control, release, repository):
    """An admin's terminal: kubectl, Helm, rightsizer; the chart and the example are where they work."""
    commands = shell.folder / ".local/bin"
    kubectl, helm = (control("install", "tool", tool).stdout.strip() for tool in ("kubectl", "helm"))
    (commands / "kubectl").symlink_to(kubectl)
    (commands / "helm").write_text(HELM.format(helm=helm))
    (commands / "helm").chmod(0o755)
    for name in ("rightsizer", "kubectl-rightsizer"):
        (commands / name).symlink_to(repository / ".venv/bin" / name)
    (chart,) = release.glob("*.tgz")
    (shell.folder / chart.name).symlink_to(chart)
    (shell.folder / "examples").symlink_to(repository / "examples")
    shell.env["KUBECONFIG"] = own
    (shell.folder / "image-only.json").write_text(json.dumps(IMAGE_ONLY))
    shell("kubectl apply --filename image-only.json")
    return shell


def test_the_guide_installs_plans_upgrades_and_leaves_nothing(admin, blocks, release):
    install, first_plan, upgrade, remove = blocks("Kubernetes")
    before = admin(EVERYTHING)
    admin(install)
    _, reference, _ = (release / "images.txt").read_text().split()
    assert admin(f"kubectl get {' '.join(OPERATOR)}") == reference
    assert "small-gpt" in admin(first_plan)
    upgraded = admin(upgrade)
    assert "has been upgraded" in upgraded
    admin(remove)
    assert admin(EVERYTHING) == before
