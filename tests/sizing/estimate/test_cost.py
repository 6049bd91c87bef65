from dataclasses import replace

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.estimate import cost


def test_dollars_are_gpus_times_hours_times_price():
    assert cost.usd(56, 61 * 3600.0, 2.5) == pytest.approx(8540)


def test_the_clusters_own_price_wins():
    cluster = replace(lookup.cluster("H100"), price_usd_per_gpu_h=1.25)
    assert cost.price_usd_per_gpu_h(cluster) == 1.25


def test_no_price_is_none_not_zero():
    cluster = lookup.cluster("H100")
    unpriced = replace(cluster, price_usd_per_gpu_h=None, gpu=replace(cluster.gpu, price_usd_per_gpu_h=None))
    assert cost.price_usd_per_gpu_h(unpriced) is None


def test_a_dgx_h100_draws_less_than_its_rating():
    assert 5.6 < cost.energy_kwh(8, 3600.0, lookup.cluster("H100")) < 10.2  # NVIDIA: 10.2 kW at most


def test_energy_is_gpus_times_hours_times_what_a_gpu_draws_with_its_share_of_the_node():
    """A GPU of 700 W draws 0.85 of it, its node 1.35 times that: 10 GPUs for 2 hours."""
    cluster = lookup.cluster("H100")
    cluster = replace(cluster, gpu=replace(cluster.gpu, tdp_w=700.0))
    assert cost.energy_kwh(10, 7200.0, cluster) == pytest.approx(10 * 2 * 0.7 * 0.85 * 1.35, rel=1e-12)
