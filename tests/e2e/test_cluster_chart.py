"""Helm's output for the chart's values, without a cluster."""

import subprocess
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.kubernetes

CHART = Path(__file__).resolve().parents[2] / "helm" / "rightsizer"
DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def helm(control):
    """helm(...): how it ended."""
    path = control("rightsizer", "tool", "helm").stdout.strip()

    def run(*arguments):
        return subprocess.run([path, *arguments], check=False, capture_output=True, text=True)

    return run


@pytest.fixture(scope="module")
def render(helm):
    """render("value=1", ...): the rendered objects by kind and name."""

    def objects(*values):
        settings = [argument for value in values for argument in ("--set-json", value)]
        done = helm("template", "here", CHART, "--namespace", "system", *settings)
        assert done.returncode == 0, done.stderr
        rendered = [each for each in yaml.safe_load_all(done.stdout) if each]
        return {(each["kind"], each["metadata"]["name"]): each for each in rendered}

    return objects


def pod(objects):
    (deployment,) = (each for (kind, _), each in objects.items() if kind == "Deployment")
    return deployment["spec"]["template"]


def test_the_chart_passes_helm_s_lint(helm):
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_names_can_be_overridden(render):
    assert ("Deployment", "here") in render()
    assert ("Deployment", "here-sizer") in render('nameOverride="sizer"')
    objects = render('fullnameOverride="sizer"')
    assert {("Deployment", "sizer"), ("ServiceAccount", "sizer"), ("Role", "sizer-lease")} <= objects.keys()
    assert not {name for _, name in objects if "here" in name}


def test_a_service_account_can_be_annotated_or_brought(render, helm):
    made = render('serviceAccount={"annotations":{"iam":"role"}}')
    assert made["ServiceAccount", "here"]["metadata"]["annotations"] == {"iam": "role"}
    brought = render('serviceAccount={"create":false,"name":"mine"}')
    assert not {name for kind, name in brought if kind == "ServiceAccount"}
    assert pod(brought)["spec"]["serviceAccountName"] == "mine"
    subjects = [each["subjects"][0]["name"] for each in brought.values() if "subjects" in each]
    assert subjects == ["mine"] * 3
    refused = helm("template", "here", CHART, "--set", "serviceAccount.create=false")
    assert "set serviceAccount.name" in refused.stderr


def test_an_image_can_be_pinned_by_digest(render):
    image = pod(render(f'image.digest="{DIGEST}"'))["spec"]["containers"][0]["image"]
    assert image == f"ghcr.io/rightsizer/rightsizer@{DIGEST}"


def test_two_replicas_prefer_two_nodes_and_are_drained_one_by_one(render):
    one, two = render(), render("replicas=2")
    assert "affinity" not in pod(one)["spec"]
    (preferred,) = pod(two)["spec"]["affinity"]["podAntiAffinity"].values()
    labels = preferred[0]["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert labels.items() <= pod(two)["metadata"]["labels"].items()
    assert two["PodDisruptionBudget", "here"]["spec"]["selector"]["matchLabels"] == labels
    assert ("PodDisruptionBudget", "here") not in one
    assert ("PodDisruptionBudget", "here") not in render("replicas=2", "podDisruptionBudget=false")


def test_a_spread_selects_the_operator_s_pods_by_default(render):
    spread = '{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway"}'
    found = pod(render(f"topologySpreadConstraints=[{spread}]"))["spec"]["topologySpreadConstraints"]
    assert found[0]["labelSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "here"
    assert found[0]["topologyKey"] == "zone"


def test_pods_take_labels_and_annotations_but_keep_those_that_select_them(render):
    given = pod(render('podLabels={"team":"nlp","app.kubernetes.io/name":"x"}', 'podAnnotations={"a":"b"}'))
    assert given["metadata"]["labels"]["team"] == "nlp"
    assert given["metadata"]["labels"]["app.kubernetes.io/name"] == "rightsizer"
    assert given["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("replica=2", "'replica' not allowed"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("image.digest=sha256:1", "at '/image/digest'"),
        ("serviceAccount.created=true", "at '/serviceAccount': additional properties 'created' not allowed"),
        ("resizing.window=30 minutes", "at '/resizing/window'"),
    ],
    ids=lambda text: text.partition("=")[0],
)
def test_a_wrong_value_is_refused_by_its_place(helm, value, message):
    refused = helm("template", "here", CHART, "--set", value)
    assert refused.returncode != 0
    assert message in refused.stderr


def test_alerts_and_dashboards_link_to_the_runbooks_that_the_values_name(render):
    own = "http://wiki.internal/runbooks"
    objects = render(f'monitoring={{"rules":true,"dashboards":true,"runbooks":"{own}"}}')
    rules = objects["PrometheusRule", "here-alerts"]["spec"]["groups"][0]["rules"]
    assert all(rule["annotations"]["runbook_url"] == f"{own}/{rule['alert']}.md" for rule in rules)
    (fleet,) = objects["ConfigMap", "here-fleet-dashboard"]["data"].values()
    assert f"{own}/${{__field.labels.alertname}}.md" in fleet
    assert "github.com" not in fleet
