import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.occupancy import bound_pods
from rightsizer_operator.cluster.relist import Listing
from rightsizer_operator.values.names import GPU_TYPE, LABEL_PLAN
from rightsizer_operator.values.nodes import ClusterNode, NodeRequirements, Taint
from rightsizer_operator.values.snapshot import AttemptJob, Rendezvous
from rightsizer_operator.values.vendors import NVIDIA

KIND, H100 = "H100-SXM5-80GB", "NVIDIA-H100-80GB-HBM3"
OWNER = {"kind": "TrainingPlan", "name": "demo", "uid": "u-demo", "controller": True}
KEY, OTHER = ("team", "demo"), ("team", "other")


def plan(version="5", name="demo", gpus=8):
    metadata = {"namespace": "team", "name": name, "uid": f"u-{name}", "resourceVersion": version}
    return {"metadata": metadata, "status": {"attempt": {"number": 1, "jobName": f"{name}-a1", "gpus": gpus}}}


def job(version="6", name="demo-a1", gpus=8, **status):
    limits = {NVIDIA.resource: str(gpus)}
    metadata = plan(version, name)["metadata"] | {"uid": f"u-{name}"}
    return {
        "metadata": metadata
        | {"labels": {LABEL_PLAN: "demo"}, "annotations": {GPU_TYPE: KIND}, "ownerReferences": [OWNER]},
        "spec": {"template": {"spec": {"containers": [{"resources": {"limits": limits}}]}}},
        "status": status,
    }


def pod(node, gpus, owner="", namespace="team", controller=True):
    """A pod that holds GPUs of a node, with this controller; without one it is a bare pod."""
    references = [{"kind": "Job", "name": "j", "uid": owner, "controller": controller}] if owner else []
    limits = {NVIDIA.resource: str(gpus)}
    spec = {"nodeName": node, "containers": [{"resources": {"limits": limits}}]}
    return {"metadata": {"namespace": namespace, "ownerReferences": references}, "spec": spec}


def service(owner="u-demo"):
    return KEY, "Service/demo-rdzv", (owner,)


@pytest.fixture
def cache():
    """A node of 16 GPUs, and a plan whose Job of one pod of 8 GPUs is not scheduled yet."""
    filled = Cache()
    filled._store_node(ClusterNode(name="n1", product=H100, gpus=16))
    filled.set_plan(plan())
    filled.set_job(job())
    return filled


def held(cache, without=OTHER):
    """GPUs of each node that are not this plan's."""
    return {node: gpus for node, gpus in cache.inventory(without=without).held.items() if gpus}


def test_a_plan_s_inventory_has_the_claims_of_the_other_plans(cache):
    assert held(cache, without=KEY) == {}
    assert held(cache) == {"n1": 8}


@pytest.mark.parametrize(
    "owners",
    [[], [OWNER | {"uid": "u-another"}], [OWNER | {"controller": False}]],
    ids=["none", "another plan of that name", "not its controller"],
)
def test_a_job_that_no_plan_owns_claims_nothing(cache, owners):
    stranger = job("9", "demo-a7", gpus=10**6)
    stranger["metadata"]["ownerReferences"] = owners
    cache.set_job(stranger)
    assert held(cache) == {"n1": 8}


def test_a_recreated_plan_does_not_own_the_old_plan_s_jobs(cache):
    again = plan("8")
    again["metadata"]["uid"] = "u-again"
    cache.set_plan(again)
    assert held(cache) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.remove_plan(KEY),
        lambda cache: cache.remove_job(job()),
        lambda cache: cache.set_job(job("7", conditions=[{"type": "Complete", "status": "True"}])),
        lambda cache: cache.replace_all(Listing(plans=(plan(),)), cache.keys()),
    ],
    ids=["plan deleted", "job deleted", "complete", "not listed"],
)
def test_finished_and_deleted_jobs_claim_nothing(cache, change):
    change(cache)
    assert held(cache) == {}


def test_a_reserved_job_claims_its_gpus_until_it_is_unreserved(cache):
    cache.set_plan(plan(name="other"))
    planned = job("0", "other-a1", gpus=4)
    planned["metadata"]["ownerReferences"] = [OWNER | {"name": "other", "uid": "u-other"}]
    cache.reserve(OTHER, AttemptJob.of(planned))
    assert held(cache, without=KEY) == {"n1": 4}
    cache.unreserve(OTHER)
    assert held(cache, without=KEY) == {}


def test_a_scheduled_pod_holds_gpus_where_it_is(cache):
    cache._store_node(ClusterNode(name="n0", product=H100, gpus=16))
    cache.set_pods(bound_pods([pod("n1", 8, "u-demo-a1")]))
    assert (held(cache), held(cache, without=KEY)) == ({"n1": 8}, {})


@given(
    strangers=st.lists(
        st.builds(
            pod,
            st.sampled_from(["n1", "n2"]),
            st.integers(1, 8),
            st.sampled_from(["", "u-stranger", "u-other"]),
            st.sampled_from(["team", "elsewhere"]),
            st.booleans(),
        )
    ),
    pods=st.integers(1, 4),
    reserved=st.booleans(),
)
def test_no_pod_of_another_owner_lowers_what_a_plan_claims(strangers, pods, reserved):
    """A Job that is about to be created has no uid yet, and a bare pod has no controller."""
    filled = Cache()
    for name in ("n1", "n2", "n3"):
        filled._store_node(ClusterNode(name=name, product=H100, gpus=1024))
    filled.set_plan(plan(gpus=8 * pods))
    made = dataclasses.replace(AttemptJob.of(job("0" if reserved else "6")), parallelism=pods)
    if reserved:
        filled.reserve(KEY, dataclasses.replace(made, uid=""))
    else:
        filled.store_job(KEY, made)
    filled.set_pods(bound_pods(strangers))
    theirs = sum(int(p["spec"]["containers"][0]["resources"]["limits"][NVIDIA.resource]) for p in strangers)
    assert sum(held(filled).values()) == theirs + 8 * pods
    assert sum(held(filled, without=KEY).values()) == theirs


def test_a_pod_of_another_namespace_is_not_the_plan_s(cache):
    cache.set_pods(bound_pods([pod("n1", 2, "u-demo-a1", "elsewhere")]))
    assert held(cache, without=KEY) == {"n1": 2}


def test_unscheduled_pods_take_gpus_only_of_nodes_that_they_may_use(cache):
    taint = Taint(key="team", value="nlp")
    cache._store_node(ClusterNode(name="n0", product=H100, gpus=64, taints=(taint,)))
    cache.set_pods([])
    assert held(cache) == {"n1": 8}
    assert cache.inventory(without=OTHER).free(NodeRequirements(), KIND, 8) == 8


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda cache: None, {"n1": 8}),
        (
            lambda cache: cache._store_node(ClusterNode(name="n1", product=H100, gpus=16, cordoned=True)),
            {"n0": 8},
        ),
        (lambda cache: cache.remove_node("n1"), {"n0": 8}),
    ],
    ids=["it-fits", "cordoned", "deleted"],
)
def test_unscheduled_pods_stay_where_they_are_expected_while_they_fit(cache, change, expected):
    cache._store_node(ClusterNode(name="n0", product=H100, gpus=64))
    change(cache)
    cache.set_pods([])
    assert held(cache) == expected


def test_unscheduled_pods_move_where_another_pod_took_their_gpus(cache):
    cache._store_node(ClusterNode(name="n0", product=H100, gpus=64))
    cache.set_pods(bound_pods([pod("n1", 9)]))
    assert held(cache) == {"n0": 8, "n1": 9}


@pytest.mark.parametrize(
    ("change", "gpus"),
    [({"parallelism": 10**6}, 8), ({"parallelism": 0}, 0)],
    ids=["more-than-the-plan-s-size", "fewer"],
)
def test_a_job_claims_at_most_the_size_of_its_plan(cache, change, gpus):
    stretched = job("7")
    stretched["spec"] |= change
    cache.set_job(stretched)
    assert held(cache).get("n1", 0) == gpus


def test_a_job_that_is_not_the_plan_s_attempt_claims_nothing(cache):
    cache.set_job(job("7", "demo-a9"))
    assert held(cache) == {"n1": 8}


def test_objects_created_during_a_relist_stay():
    cache = Cache()
    before = cache.keys()
    cache.set_plan(plan())
    cache.set_job(job())
    cache.children[KEY].add("Service/demo-rdzv")
    assert cache.replace_all(Listing(), before) == frozenset()
    assert (KEY in cache.plans, len(cache.jobs[KEY]), len(cache.children[KEY])) == (True, 1, 1)


def test_objects_deleted_during_a_relist_do_not_come_back(cache):
    before = cache.keys()
    cache.remove_job(job())
    cache.remove_plan(KEY)
    cache.replace_all(Listing(plans=(plan(),), jobs=((KEY, AttemptJob.of(job())),)), before)
    assert (cache.plans, cache.jobs.get(KEY, {})) == ({}, {})


def test_a_relist_returns_the_plans_that_were_deleted(cache):
    assert cache.replace_all(Listing(), cache.keys()) == {KEY}


@pytest.mark.parametrize(
    ("child", "cached"),
    [
        (service(), {"Service/demo-rdzv"}),
        (service(owner="u-other"), set()),
    ],
    ids=["owned", "another owner"],
)
def test_only_children_that_the_plan_owns_are_cached(cache, child, cached):
    cache.replace_all(
        Listing(plans=(plan(),), jobs=((KEY, AttemptJob.of(job())),), children=(child,)), cache.keys()
    )
    assert cache.children[KEY] == cached


def rendezvous(ready=True, version=9, **change):
    fields = {"name": "demo-rdzv", "owner_uids": frozenset({"u-demo"}), "ready": ready, "version": version}
    return Rendezvous(**fields | change)


def test_a_rendezvous_store_is_ready_while_its_newest_version_is(cache):
    assert not cache.is_rendezvous_ready(KEY)
    assert [cache.set_rendezvous(KEY, rendezvous(version=v)) for v in (9, 8, 10)] == [True, False, False]
    assert cache.is_rendezvous_ready(KEY)
    assert cache.set_rendezvous(KEY, rendezvous(ready=False, version=11))
    assert not cache.is_rendezvous_ready(KEY)


def test_the_end_of_an_earlier_store_leaves_the_new_one(cache):
    cache.set_rendezvous(KEY, rendezvous(version=12))
    cache.remove_rendezvous(KEY, rendezvous(version=11))
    assert cache.is_rendezvous_ready(KEY)


@pytest.mark.parametrize(
    "change", [{"name": "other"}, {"owner_uids": frozenset({"u-other"})}], ids=["other name", "another owner"]
)
def test_a_replica_set_with_our_labels_is_no_store(cache, change):
    cache.set_rendezvous(KEY, rendezvous(**change))
    assert not cache.is_rendezvous_ready(KEY)


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.remove_rendezvous(KEY, rendezvous(version=10)),
        lambda cache: cache.remove_plan(KEY),
    ],
    ids=["store", "plan"],
)
def test_a_deleted_store_is_not_ready(cache, change):
    cache.replace_all(Listing(plans=(plan(),), rendezvous=((KEY, rendezvous()),)), cache.keys())
    assert cache.is_rendezvous_ready(KEY)
    change(cache)
    cache.set_plan(plan("12"))
    assert not cache.is_rendezvous_ready(KEY)


def test_a_job_that_only_has_a_newer_version_brings_no_plan_back(cache):
    assert not cache.set_job(job("7"))
    assert cache.set_job(job("8", ready=1))
    assert not cache.set_job(job("7"))


def test_a_listed_plan_is_kept_only_if_it_is_newer_than_the_cached_one(cache):
    newer, unknown = plan("6"), plan("1", "other")
    assert cache.newest(plan("5")) is cache.plans[KEY]
    assert cache.newest(newer) is newer
    assert cache.newest(unknown) is unknown


def test_plans_share_equal_texts(cache):
    cache.set_plan(plan("5", "".join(("ot", "her"))) | {"spec": {"note": "".join(("a ", "text"))}})
    cache.set_plan(plan("7") | {"spec": {"note": "".join(("a te", "xt"))}})
    assert cache.plans[KEY]["spec"]["note"] is cache.plans[OTHER]["spec"]["note"]


def test_a_plan_that_is_nested_as_deep_as_json_is_read_is_cached(cache):
    depth = 900
    template = json.loads('{"a":' * depth + "1" + "}" * depth)
    assert cache.set_plan(plan("9") | {"spec": {"launch": {"podTemplate": template}}})
    assert cache.plans[KEY]["spec"]["launch"]["podTemplate"] == template
