import pytest

from rightsizer_engine.errors import InputError
from rightsizer_operator.manifests.strategic_merge import merged_template
from rightsizer_operator.values.actions import Apply

GPU_NODES = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def pods(fake_cluster, spec=None):
    """The pod specs of a worker and of the rendezvous store, with this template."""
    cluster = fake_cluster({"launch": {"podTemplate": {"spec": spec or {}}}})
    for index, _ in enumerate(cluster.nodes):
        cluster.change_node(index, labels={"pool": "a"})
    children = {
        a.child["kind"]: a.child["spec"]
        for a in cluster.decide()
        if isinstance(a, Apply) and "spec" in a.child
    }
    return tuple(children[kind]["template"]["spec"] for kind in ("Job", "ReplicaSet"))


def trainer(**fields):
    return {"containers": [{"name": "trainer", **fields}]}


def environment(worker):
    return {variable["name"]: variable.get("value") for variable in worker["containers"][0]["env"]}


@pytest.mark.parametrize("pod", [0, 1], ids=["worker", "store"])
def test_pods_meet_the_restricted_standard(fake_cluster, pod):
    spec = pods(fake_cluster)[pod]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert (
        container["securityContext"].items()
        >= (RESTRICTED | {"runAsNonRoot": True, "runAsUser": 65532}).items()
    )


def test_our_user_has_a_home_and_owns_the_volumes(fake_cluster):
    worker, _ = pods(fake_cluster)
    assert worker["securityContext"]["fsGroup"] == 65532
    assert environment(worker)["HOME"] == "/var/run/rightsizer"


@pytest.mark.parametrize(
    ("spec", "user"),
    [
        ({"securityContext": {"runAsUser": 1000}}, {"runAsNonRoot": True}),
        ({"securityContext": {"runAsNonRoot": True}}, {}),
        ({"securityContext": {"runAsUser": 0}}, {}),
        (trainer(securityContext={"runAsUser": 1000}), {"runAsNonRoot": True, "runAsUser": 1000}),
    ],
    ids=["id", "of-the-image", "root", "of-the-trainer"],
)
def test_a_template_that_states_the_user_replaces_ours(fake_cluster, spec, user):
    worker, store = pods(fake_cluster, spec)
    assert worker["containers"][0]["securityContext"] == RESTRICTED | user
    assert store["containers"][0]["securityContext"] == RESTRICTED | user | {"readOnlyRootFilesystem": True}
    assert "fsGroup" not in worker["securityContext"]
    assert "HOME" not in environment(worker)
    stated = spec.get("securityContext", {})
    assert worker["securityContext"].items() >= stated.items() <= store["securityContext"].items()


def test_a_template_may_lift_restrictions_of_the_trainer_only(fake_cluster):
    worker, store = pods(fake_cluster, trainer(securityContext={"privileged": True}))
    assert "allowPrivilegeEscalation" not in worker["containers"][0]["securityContext"]
    assert store["containers"][0]["securityContext"].items() >= RESTRICTED.items()


def test_the_store_takes_where_to_run_and_how_to_pull_from_the_template(fake_cluster):
    term = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "team"}],
        "imagePullSecrets": [{"name": "hub"}],
        "affinity": {"nodeAffinity": terms, "podAffinity": {}},
        "hostNetwork": True,
    }
    _, store = pods(fake_cluster, spec | trainer(imagePullPolicy="Always"))
    assert store.items() >= {"nodeSelector": {"pool": "a"}, "imagePullSecrets": [{"name": "hub"}]}.items()
    assert store["tolerations"][-2:] == [GPU_NODES, {"key": "team"}]
    assert store["affinity"] == {"nodeAffinity": terms}
    assert store["containers"][0]["imagePullPolicy"] == "Always"
    assert "hostNetwork" not in store


def test_the_template_s_container_store_is_the_rendezvous_pod_s(fake_cluster):
    limits = {"limits": {"cpu": "100m"}}
    worker, store = pods(fake_cluster, {"containers": [{"name": "store", "resources": limits}]})
    assert [container["name"] for container in worker["containers"]] == ["trainer"]
    assert store["containers"][0]["resources"]["limits"] == {"cpu": "100m", "memory": "1Gi"}


@pytest.mark.parametrize("field", ["command", "args"])
def test_a_template_may_not_set_the_store_s_command(field):
    with pytest.raises(InputError, match=f"containers\\[0\\].{field}"):
        merged_template({"spec": {}}, {"spec": {"containers": [{"name": "store", field: ["x"]}]}})
