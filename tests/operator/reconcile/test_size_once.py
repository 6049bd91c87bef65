import datetime as dt

import pytest

from rightsizer_operator.reconcile import size
from rightsizer_operator.reconcile.sizing_response import cached_response
from rightsizer_operator.values.inventory import Inventory


@pytest.mark.parametrize("seconds", [1.0, 59.9, 3600.0, 86399.5, 1e7])
def test_a_deadline_is_rounded_down_and_by_little(seconds):
    assert 0 <= seconds - size._floor(seconds) <= 0.004 * seconds


def test_plans_that_ask_the_same_are_sized_once(fake_cluster):
    fake_cluster().later(seconds=1).settle()
    before = cached_response.cache_info()
    fake_cluster().later(seconds=4).settle()
    after = cached_response.cache_info()
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 0)


def test_a_plan_that_has_lost_much_of_its_time_is_sized_anew(fake_cluster):
    fake_cluster().settle()
    before = cached_response.cache_info().misses
    late = fake_cluster()
    late.now += dt.timedelta(minutes=30)
    late.settle()
    assert cached_response.cache_info().misses > before


def test_what_others_take_does_not_matter_while_there_is_enough(fake_cluster):
    nodes = fake_cluster(nodes=4).nodes
    claims = [Inventory(nodes=tuple(nodes), held={"n0": held}) for held in (0, 1, 5, 7)]
    misses = []
    for inventory in claims:
        one = fake_cluster({"resources": {"gpus": None, "maxGPUs": None}}, inventory=inventory)
        one.settle()
        misses.append(cached_response.cache_info().misses)
    assert (one.state, misses[1:]) == ("Starting", misses[:1] * 3)
