import pytest

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.relist import Listing
from rightsizer_operator.values.names import GPU_RESOURCE, GPU_TYPE, LABEL_PLAN
from rightsizer_operator.values.snapshot import AttemptJob

KIND = "H100-SXM5-80GB"
OWNER = {"kind": "TrainingPlan", "name": "demo", "uid": "u-demo", "controller": True}
KEY, OTHER = ("team", "demo"), ("team", "other")


def plan(version="5", name="demo"):
    return {"metadata": {"namespace": "team", "name": name, "uid": f"u-{name}", "resourceVersion": version}}


def job(version="6", name="demo-a1", gpus=8, **status):
    limits = {GPU_RESOURCE: str(gpus)}
    metadata = plan(version, name)["metadata"]
    return {
        "metadata": metadata
        | {"labels": {LABEL_PLAN: "demo"}, "annotations": {GPU_TYPE: KIND}, "ownerReferences": [OWNER]},
        "spec": {"template": {"spec": {"containers": [{"resources": {"limits": limits}}]}}},
        "status": status,
    }


def service(owner="u-demo"):
    return KEY, "Service/demo-rdzv", (owner,)


@pytest.fixture
def cache():
    filled = Cache()
    filled.set_plan(plan())
    filled.set_job(job())
    return filled


def test_a_plan_s_inventory_has_the_claims_of_the_other_plans(cache):
    assert cache.inventory(without=KEY).claimed[KIND] == 0
    assert cache.inventory(without=OTHER).claimed[KIND] == 8


@pytest.mark.parametrize(
    "owners",
    [[], [OWNER | {"uid": "u-another"}], [OWNER | {"controller": False}]],
    ids=["none", "another plan of that name", "not its controller"],
)
def test_a_job_that_no_plan_owns_claims_nothing(cache, owners):
    stranger = job("9", "demo-a7", gpus=10**6)
    stranger["metadata"]["ownerReferences"] = owners
    cache.set_job(stranger)
    assert cache.inventory(without=OTHER).claimed[KIND] == 8


def test_a_recreated_plan_does_not_own_the_old_plan_s_jobs(cache):
    again = plan("8")
    again["metadata"]["uid"] = "u-again"
    cache.set_plan(again)
    assert cache.inventory(without=OTHER).claimed.get(KIND, 0) == 0


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
    assert cache.inventory(without=OTHER).claimed.get(KIND, 0) == 0


def test_a_reserved_job_claims_its_gpus_until_it_is_unreserved(cache):
    cache.set_plan(plan(name="other"))
    planned = job("0", "other-a1", gpus=4)
    planned["metadata"]["ownerReferences"] = [OWNER | {"name": "other", "uid": "u-other"}]
    cache.reserve(OTHER, AttemptJob.of(planned))
    assert cache.inventory(without=KEY).claimed[KIND] == 4
    cache.unreserve(OTHER)
    assert cache.inventory(without=KEY).claimed[KIND] == 0


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
