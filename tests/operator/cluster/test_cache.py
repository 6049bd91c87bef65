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


def support(owner="u-demo"):
    return KEY, "Service/demo-rdzv", (owner,)


@pytest.fixture
def cache():
    known = Cache()
    known.saw_plan(plan())
    known.saw_job(job())
    return known


def test_a_plan_sees_what_the_others_claim(cache):
    assert cache.inventory(without=KEY).claimed[KIND] == 0
    assert cache.inventory(without=OTHER).claimed[KIND] == 8


@pytest.mark.parametrize(
    "owners",
    [[], [OWNER | {"uid": "u-another"}], [OWNER | {"controller": False}]],
    ids=["none", "another plan of that name", "not its controller"],
)
def test_a_job_that_no_plan_owns_claims_nothing_whatever_its_labels_say(cache, owners):
    stranger = job("9", "demo-a7", gpus=10**6)
    stranger["metadata"]["ownerReferences"] = owners
    cache.saw_job(stranger)
    assert cache.inventory(without=OTHER).claimed[KIND] == 8


def test_a_plan_that_comes_again_under_its_name_does_not_own_the_old_jobs(cache):
    again = plan("8")
    again["metadata"]["uid"] = "u-again"
    cache.saw_plan(again)
    assert cache.inventory(without=OTHER).claimed.get(KIND, 0) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.lost_plan(KEY),
        lambda cache: cache.lost_job(job()),
        lambda cache: cache.saw_job(job("7", conditions=[{"type": "Complete", "status": "True"}])),
        lambda cache: cache.renew(Listing(plans=(plan(),)), cache.marks()),
    ],
    ids=["plan gone", "job gone", "complete", "not found any more"],
)
def test_what_is_over_claims_nothing(cache, change):
    change(cache)
    assert cache.inventory(without=OTHER).claimed.get(KIND, 0) == 0


def test_a_job_that_is_about_to_be_made_claims_until_it_is_given_up(cache):
    cache.saw_plan(plan(name="other"))
    planned = job("0", "other-a1", gpus=4)
    planned["metadata"]["ownerReferences"] = [OWNER | {"name": "other", "uid": "u-other"}]
    cache.reserve(OTHER, AttemptJob.of(planned))
    assert cache.inventory(without=KEY).claimed[KIND] == 4
    cache.unreserve(OTHER)
    assert cache.inventory(without=KEY).claimed[KIND] == 0


def test_what_came_while_everything_was_read_stays():
    cache = Cache()
    before = cache.marks()
    cache.saw_plan(plan())
    cache.saw_job(job())
    cache.supports[KEY].add("Service/demo-rdzv")
    assert cache.renew(Listing(), before) == frozenset()
    assert (KEY in cache.plans, len(cache.jobs[KEY]), len(cache.supports[KEY])) == (True, 1, 1)


def test_what_went_while_everything_was_read_does_not_come_back(cache):
    before = cache.marks()
    cache.lost_job(job())
    cache.lost_plan(KEY)
    cache.renew(Listing(plans=(plan(),), jobs=((KEY, AttemptJob.of(job())),)), before)
    assert (cache.plans, cache.jobs.get(KEY, {})) == ({}, {})


def test_plans_that_are_not_found_any_more_are_named(cache):
    assert cache.renew(Listing(), cache.marks()) == {KEY}


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (support(), {"Service/demo-rdzv"}),
        (support(owner="somebody"), set()),
    ],
    ids=["owned", "of others"],
)
def test_only_supports_that_a_plan_owns_count(cache, found, known):
    cache.renew(
        Listing(plans=(plan(),), jobs=((KEY, AttemptJob.of(job())),), supports=(found,)), cache.marks()
    )
    assert cache.supports[KEY] == known
