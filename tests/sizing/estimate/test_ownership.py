"""Rent or buy, by hand: figures that make the sums easy."""

import json
from dataclasses import replace

import pytest

from rightsizer_engine import packaged
from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.goodput import Reliability
from rightsizer_engine.estimate.ownership import BilledRun, compare, terms

H100 = replace(lookup.cluster("H100-SXM5-80GB"), price_usd_per_gpu_h=2.0)
KW = 0.7 * 0.85 * 1.35
NEVER_FAILS = Reliability(failures_per_1000_node_days=0.0)
JOB = BilledRun(
    cluster=H100, gpus=16, wall_s=100 * 3600.0, goodput=0.9, checkpoint_bytes=1e9, reliability=NEVER_FAILS
)
PLAIN = {
    "server_usd_per_gpu": 30_000.0,
    "network_share": 0.0,
    "years": 3.0,
    "residual_share": 0.0,
    "interest": 0.0,
    "upkeep_share": 0.0,
    "hosting_usd_per_kw_month": 1e-9,
    "power_usd_per_kwh": 1e-9,
    "utilization": 0.5,
    "reserved_share": 0.5,
    "spot_share": 0.25,
    "spot_interruptions": 0.0,
}


def found(job=JOB, **changes):
    return compare(job, terms(job.cluster, {**PLAIN, **changes}))


def offers(comparison):
    return {offer.name.split()[0]: offer for offer in comparison.offers}


def test_owning_pays_from_its_yearly_cost_over_the_rate():
    comparison = found()
    assert offers(comparison)["owned"].pays_from_gpu_h == pytest.approx(16 * 10_000 / 2.0)
    assert comparison.pays_from_jobs == pytest.approx(10_000 / 2.0 / 100)
    assert comparison.purchase_usd == 16 * 30_000


def test_alone_a_reservation_is_a_year_and_own_gpus_are_their_life():
    alone = {name: offer.usd for name, offer in offers(found()).items()}
    expected = {"on": 3200, "reserved": 16 * 8760, "spot": 800, "owned": 480_000}
    assert alone == pytest.approx(expected, rel=1e-6)


def test_a_stream_shares_the_year():
    comparison = found()
    assert comparison.jobs_a_year == pytest.approx(43.8)
    stream = {name: offer.stream_usd for name, offer in offers(comparison).items()}
    expected = {"on": 3200, "reserved": 3200, "spot": 800, "owned": 16 * 10_000 / 43.8}
    assert stream == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "usd_per_year"),
    [
        ({"upkeep_share": 0.1}, 13_000),
        ({"residual_share": 0.5}, 5_000),
        ({"network_share": 0.2}, 12_000),
        ({"interest": 0.1}, 30_000 * 0.1 / (1 - 1.1**-3)),
        ({"hosting_usd_per_kw_month": 100.0}, 10_000 + 1200 * KW),
    ],
    ids=["upkeep", "residual", "network", "interest", "hosting"],
)
def test_each_cause_has_its_part_of_the_yearly_cost(changes, usd_per_year):
    owned = offers(found(**changes))["owned"]
    assert owned.pays_from_gpu_h == pytest.approx(16 * usd_per_year / 2.0, rel=1e-6)


def test_power_is_paid_by_the_hour_of_use():
    owned = offers(found(power_usd_per_kwh=0.5, pue=2.0))["owned"]
    assert owned.pays_from_gpu_h == pytest.approx(16 * 10_000 / (2.0 - KW), rel=1e-6)


def test_one_node_needs_no_network():
    assert found(replace(JOB, gpus=8), network_share=0.5).purchase_usd == 8 * 30_000


def test_owning_never_pays_where_a_year_is_too_short():
    comparison = found(server_usd_per_gpu=60_000.0)
    assert (offers(comparison)["owned"].pays_from_gpu_h, comparison.pays_from_jobs) == (None, None)


def test_interruptions_lengthen_a_run_on_spot():
    calm, rough = (offers(found(spot_interruptions=rate))["spot"] for rate in (0.0, 500.0))
    assert calm.wall_s == JOB.wall_s
    assert rough.wall_s > 1.005 * JOB.wall_s
    assert rough.usd == pytest.approx(0.5 * 16 * rough.wall_s / 3600)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"utilization": 1.5}, "must be from 1e-09 to 1"),
        ({"years": 0.0}, "must be from 1e-09"),
        ({"years": float("nan")}, "must be from 1e-09"),
        ({"year": 4.0}, "did you mean"),
    ],
    ids=["share", "zero", "nan", "name"],
)
def test_a_figure_that_cannot_be_meant_is_refused(given, words):
    with pytest.raises(InputError, match=words):
        terms(H100, given)


def test_a_gpu_without_a_known_price_must_be_given_one():
    unknown = replace(H100, gpu=replace(H100.gpu, name="L4"))
    with pytest.raises(InputError, match="--own server_usd_per_gpu"):
        terms(unknown, {})
    assert terms(unknown, {"server_usd_per_gpu": 5e3}).server_usd_per_gpu == 5e3


def test_every_default_has_a_date_and_a_source():
    data = json.loads(packaged.text("ownership.json"))
    entries = [*data["figures"].values(), *data["server_usd_per_gpu"].values()]
    assert all(entry["date"] and entry["source"] for entry in entries)
    assert all(lookup.gpu(name).name == name for name in data["server_usd_per_gpu"])
