"""Several plans share one inventory: who gets what, who waits and why."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer.fleet.allocate import GpuRequest, allocate, minimum_satisfactory_share
from rightsizer.resize.types import Size

HOUR = 3600.0


def sizes(most=16, *, doubling=1.8, sigma=0.0):
    counts = [n for n in (1, 2, 4, 8, 16, 32) if n <= most]
    return tuple(Size(gpus=n, tokens_per_s=doubling ** (n.bit_length() - 1), sigma=sigma) for n in counts)


def request(key, *, hours=10.0, deadline=None, **changes):
    """A plan with `hours` of work on one GPU and `deadline` hours left."""
    left_s = None if deadline is None else deadline * HOUR
    return GpuRequest(
        **({"key": key, "sizes": sizes(), "tokens_left": hours * HOUR, "deadline_left_s": left_s} | changes)
    )


def gpus_of(found):
    return {key: grant.size.gpus for key, grant in found.grants.items()}


SHARES = {
    "a day for ten hours": (request("a", deadline=24), 1, True),
    "six hours for ten": (request("a", deadline=6), 2, True),
    "two hours for ten": (request("a", deadline=2), 8, True),
    "an hour for ten: late whatever it gets": (request("a", deadline=0.5), 16, False),
    "late, and no faster with more": (request("a", deadline=5, sizes=sizes(doubling=1.001)), 1, False),
    "surer where rates are less sure": (request("a", deadline=11, sizes=sizes(sigma=0.3)), 2, True),
}


@pytest.mark.parametrize("case", SHARES.values(), ids=SHARES)
def test_the_minimum_satisfactory_share(case):
    some, gpus, in_time = case
    size, good = minimum_satisfactory_share(some)
    assert (size.gpus, good) == (gpus, in_time)


def test_each_gets_its_share_and_the_rest_is_free():
    found = allocate([request("a", deadline=24), request("b", deadline=6)], gpus=16)
    assert gpus_of(found) == {"a": 1, "b": 2}
    assert found.free_gpus == 13
    assert "the fewest GPUs that meet the deadline" in found.grants["b"].reason


def test_who_must_start_soonest_goes_first_and_the_other_hears_why_it_waits():
    found = allocate([request("later", deadline=4), request("soon", deadline=3.5)], gpus=5)
    assert gpus_of(found) == {"soon": 4}
    assert found.waiting["later"].reason == "needs 4 GPUs, 1 are free"


def test_small_ones_go_ahead_until_a_large_one_has_waited_long_enough():
    large, small = request("large", deadline=2, waited_s=60.0), request("small", deadline=24)
    assert gpus_of(allocate([large, small], gpus=4)) == {"small": 1}
    patient = allocate([replace(large, waited_s=2 * HOUR), small], gpus=4)
    assert patient.grants == {}
    assert "large has waited longest" in patient.waiting["small"].reason


def test_a_running_plan_keeps_what_it_has_where_it_cannot_be_moved():
    running = request("a", deadline=24, present_gpus=8, movable=False)
    found = allocate([running, request("b", deadline=2)], gpus=16)
    assert gpus_of(found) == {"a": 8, "b": 8}


def test_a_running_plan_that_can_be_moved_makes_room():
    running = request("a", deadline=24, present_gpus=16)
    assert gpus_of(allocate([running, request("b", deadline=2)], gpus=16)) == {"a": 1, "b": 8}


def test_spare_gpus_go_where_they_help_most():
    even = request("even", sizes=sizes(doubling=2.0), deadline=0.1, hours=100)
    poor = request("poor", sizes=sizes(doubling=1.2), deadline=0.1, hours=100)
    some = [replace(c, sizes=c.sizes[:2]) for c in (even, poor)]
    wide = [replace(c, sizes=s) for c, s in zip(some, (even.sizes, poor.sizes), strict=True)]
    found = allocate([replace(wide[0], present_gpus=2), replace(wide[1], present_gpus=2)], gpus=12)
    assert found.grants["even"].size.gpus > found.grants["poor"].size.gpus


def test_nobody_gets_spare_gpus_that_would_only_make_him_early():
    assert gpus_of(allocate([request("a", deadline=24)], gpus=32)) == {"a": 1}


CLAIMS = st.lists(
    st.builds(
        request,
        st.uuids().map(str),
        hours=st.floats(0.1, 100),
        deadline=st.one_of(st.none(), st.floats(0.01, 100)),
        sizes=st.builds(sizes, st.sampled_from([1, 4, 16]), doubling=st.floats(1.0, 2.0)),
        waited_s=st.floats(0, 1e5),
    ),
    max_size=12,
    unique_by=lambda c: c.key,
)


@given(requests=CLAIMS, gpus=st.integers(0, 64))
def test_no_gpu_is_given_twice_and_nobody_is_forgotten(requests, gpus):
    found = allocate(requests, gpus=gpus)
    assert sum(gpus_of(found).values()) + found.free_gpus == gpus
    assert found.free_gpus >= 0
    assert set(found.grants) | set(found.waiting) == {c.key for c in requests}
    assert not set(found.grants) & set(found.waiting)


@given(requests=CLAIMS)
def test_with_gpus_for_all_everyone_who_can_be_in_time_is(requests):
    found = allocate(requests, gpus=10_000)
    for some in requests:
        assert found.grants[some.key].in_time == minimum_satisfactory_share(some)[1]
