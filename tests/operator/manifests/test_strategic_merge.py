import pytest

from rightsizer_engine.errors import InputError
from rightsizer_operator.manifests.strategic_merge import merged_template

MANAGED_SELECTOR = {
    "metadata": {"labels": {"rightsizer.dev/plan": "demo"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "trainer", "image": "a", "env": [{"name": "PET_NNODES", "value": "1:2"}]}],
        "volumes": [{"name": "run", "emptyDir": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
}


def merged(spec, **metadata):
    return merged_template(MANAGED_SELECTOR, {"spec": spec, "metadata": metadata})


def test_without_a_template_ours_stands():
    assert merged_template(MANAGED_SELECTOR, None) == MANAGED_SELECTOR


def test_containers_volumes_and_variables_are_merged_by_name():
    trainer = {"name": "trainer", "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": 4}}}
    spec = merged({"containers": [trainer, {"name": "log"}], "volumes": [{"name": "data"}]})["spec"]
    assert [c["name"] for c in spec["containers"]] == ["trainer", "log"]
    assert [v["name"] for v in spec["containers"][0]["env"]] == ["PET_NNODES", "A"]
    assert [v["name"] for v in spec["volumes"]] == ["run", "data"]


def test_tolerations_are_added_and_other_fields_are_the_user_s():
    spec = merged({"tolerations": [{"key": "spot"}], "nodeSelector": {"pool": "h100"}, "hostIPC": True})[
        "spec"
    ]
    assert [t["key"] for t in spec["tolerations"]] == ["gpu", "spot"]
    assert (spec["nodeSelector"], spec["hostIPC"]) == ({"pool": "h100"}, True)


def test_our_labels_win_over_the_user_s():
    labels = merged({}, labels={"team": "nlp", "rightsizer.dev/plan": "other"})["metadata"]["labels"]
    assert labels == {"team": "nlp", "rightsizer.dev/plan": "demo"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"restartPolicy": "Always"}, "restartPolicy"),
        ({"hostname": "x"}, "hostname"),
        ({"containers": [{"name": "trainer", "args": []}]}, "containers[0].args"),
        ({"containers": [{"name": "trainer", "command": []}]}, "containers[0].command"),
        (
            {"containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 8}}}]},
            "containers[0].resources.limits",
        ),
        ({"containers": [{"name": "x", "env": [{"name": "RANK"}]}]}, "containers[0].env[0].name"),
        ({"containers": [{"name": "x", "env": [{"name": "PET_X"}]}]}, "containers[0].env[0].name"),
        ({"containers": [{"name": "x", "env": [{"name": "a=b"}]}]}, "containers[0].env[0].name"),
    ],
)
def test_what_would_break_the_launch_is_refused_by_name(spec, field):
    with pytest.raises(InputError) as refused:
        merged(spec)
    assert refused.value.field.endswith(field)
