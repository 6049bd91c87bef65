"""Rent or buy: what a run costs on demand, reserved, on spot and on own GPUs, and when owning pays.

Owning GPUs costs F a GPU and year, used or not, and v an hour of use. With purchase P (servers and network),
residual share s after n years, interest r, upkeep share u, and k kW a GPU (nodes included, PUE not):

    F = P (1 - s / (1 + r)^n) r / (1 - (1 + r)^-n) + u P + 12 k hosting        (annuity of what is not resold)
    v = k PUE power

Renting at q an hour costs more than owning from h = F / (q - v) hours a GPU and year. Power that idle GPUs
draw is left out, as are taxes, storage and egress. Known error: that of the purchase price, 20 to 40 %.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np

from rightsizer_engine import packaged
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.errors import InputError, UnknownNameError
from rightsizer_engine.estimate import goodput
from rightsizer_engine.estimate.cost import DRAW_FRACTION_OF_TDP, NODE_WATTS_PER_GPU_WATT, price_usd_per_gpu_h
from rightsizer_engine.estimate.goodput import Reliability
from rightsizer_engine.values import immutable

_YEAR_H = 8760.0
_SHARES = ("residual_share", "utilization", "reserved_share", "spot_share")
_MAY_BE_ZERO = ("network_share", "residual_share", "interest", "upkeep_share", "spot_interruptions")


@immutable
class Assumption:
    """One figure with where it comes from."""

    name: str
    value: float
    unit: str
    date: str
    source: str


@immutable
class Terms:
    """Every input of the comparison, in the units of data/ownership.json."""

    on_demand_usd_per_gpu_h: float
    server_usd_per_gpu: float
    network_share: float
    years: float
    residual_share: float
    interest: float
    upkeep_share: float
    hosting_usd_per_kw_month: float
    power_usd_per_kwh: float
    pue: float
    utilization: float
    reserved_share: float
    spot_share: float
    spot_interruptions: float
    assumptions: tuple[Assumption, ...] = ()


@immutable
class BilledRun:
    """The run: GPUs held (spares included), wall time, its productive share, bytes of a checkpoint."""

    cluster: Cluster
    gpus: int
    wall_s: float
    goodput: float
    checkpoint_bytes: float
    reliability: Reliability


@immutable
class PurchaseOption:
    """One way to have the GPUs.

    `usd` is this job alone: a reservation for its whole year, own GPUs for their whole life. `stream_usd` is
    one job of a stream that keeps them busy for `utilization` of the time. From `pays_from_gpu_h` a year it
    is cheaper than on demand; None: never, or not of interest.
    """

    name: str
    usd_per_gpu_h: float
    wall_s: float
    usd: float
    stream_usd: float
    pays_from_gpu_h: float | None = None


@immutable
class OwnershipComparison:
    """The offers and the stream behind them. `pays_from_jobs`: such jobs a year from which owning pays."""

    terms: Terms
    gpus: int
    purchase_usd: float
    jobs_a_year: float
    offers: tuple[PurchaseOption, ...]
    pays_from_jobs: float | None


def terms(cluster: Cluster, given: Mapping[str, float]) -> Terms:
    """The dated defaults for this cluster, with the user's figures in their place."""
    names = [field.name for field in fields(Terms) if field.name != "assumptions"]
    for name, value in given.items():
        if name not in names:
            raise UnknownNameError("--own", value=name, candidates=names)
        _check(name, value)
    known = {**_defaults(cluster), **{name: _given(name, value) for name, value in given.items()}}
    for name in names:
        if name not in known:
            raise InputError(
                f"--own {name}",
                value="",
                remedy=f"is not known for {cluster.gpu.name}: give --own {name}=USD",
            )
    values = {name: known[name].value for name in names}
    return Terms(**values, assumptions=tuple(known[name] for name in names))


def compare(job: BilledRun, on: Terms) -> OwnershipComparison:
    """Each offer for this job and for a stream of such jobs."""
    hours = job.wall_s / 3600.0
    jobs_a_year = _YEAR_H * on.utilization / hours
    network = on.network_share if job.gpus > job.cluster.gpus_per_node else 0.0
    purchase = on.server_usd_per_gpu * (1.0 + network)
    owned = _owned(job, on, purchase, jobs_a_year)
    pays_from = owned.pays_from_gpu_h
    return OwnershipComparison(
        terms=on,
        gpus=job.gpus,
        purchase_usd=purchase * job.gpus,
        jobs_a_year=jobs_a_year,
        offers=(*_rented(job, on, jobs_a_year), owned),
        pays_from_jobs=None if pays_from is None else pays_from / (job.gpus * hours),
    )


def _rented(job: BilledRun, on: Terms, jobs_a_year: float) -> tuple[PurchaseOption, ...]:
    """On demand, reserved, spot."""
    gpu_h, year_gpu_h = job.gpus * job.wall_s / 3600.0, job.gpus * _YEAR_H
    rate, reserved = on.on_demand_usd_per_gpu_h, on.on_demand_usd_per_gpu_h * on.reserved_share
    spot_wall_s = job.wall_s * job.goodput / _spot_goodput(job, on)
    spot_rate = rate * on.spot_share
    spot_usd = spot_rate * job.gpus * spot_wall_s / 3600.0
    return (
        _offer("on demand", rate, job.wall_s, rate * gpu_h, rate * gpu_h),
        PurchaseOption(
            name="reserved for a year",
            usd_per_gpu_h=reserved,
            wall_s=job.wall_s,
            usd=reserved * year_gpu_h,
            stream_usd=reserved * year_gpu_h / jobs_a_year,
            pays_from_gpu_h=_within_a_year(_YEAR_H * on.reserved_share, job.gpus),
        ),
        _offer("spot", spot_rate, spot_wall_s, spot_usd, spot_usd),
    )


def _owned(job: BilledRun, on: Terms, purchase: float, jobs_a_year: float) -> PurchaseOption:
    gpu_h, rate = job.gpus * job.wall_s / 3600.0, on.on_demand_usd_per_gpu_h
    kw = job.cluster.gpu.power_w * DRAW_FRACTION_OF_TDP * NODE_WATTS_PER_GPU_WATT / 1000.0
    fixed = _fixed_usd_per_year(purchase, kw, on)
    variable = kw * on.pue * on.power_usd_per_kwh
    return PurchaseOption(
        name="owned",
        usd_per_gpu_h=fixed / (_YEAR_H * on.utilization) + variable,
        wall_s=job.wall_s,
        usd=job.gpus * fixed * on.years + variable * gpu_h,
        stream_usd=job.gpus * fixed / jobs_a_year + variable * gpu_h,
        pays_from_gpu_h=_within_a_year(fixed / (rate - variable) if rate > variable else math.inf, job.gpus),
    )


def _offer(name: str, rate: float, wall_s: float, usd: float, stream_usd: float) -> PurchaseOption:
    return PurchaseOption(name=name, usd_per_gpu_h=rate, wall_s=wall_s, usd=usd, stream_usd=stream_usd)


def _fixed_usd_per_year(purchase: float, kw: float, on: Terms) -> float:
    """F of the module's text, for one GPU."""
    growth = (1.0 + on.interest) ** on.years
    annuity = on.interest * growth / (growth - 1.0) if on.interest else 1.0 / on.years
    depreciation: float = purchase * (1.0 - on.residual_share / growth) * annuity
    return depreciation + on.upkeep_share * purchase + 12.0 * kw * on.hosting_usd_per_kw_month


def _within_a_year(hours: float, gpus: int) -> float | None:
    """GPU-hours of so many hours a GPU; None if a year has fewer."""
    return None if hours > _YEAR_H else hours * gpus


def _spot_goodput(job: BilledRun, on: Terms) -> float:
    """The job's goodput where interruptions come on top of failures."""

    def productive(rate: float) -> float:
        reliability = replace(job.reliability, failures_per_1000_node_days=rate)
        found = goodput.estimate(np.asarray(job.gpus), np.asarray(job.checkpoint_bytes), reliability)
        return float(found.productive)

    failures = job.reliability.failures_per_1000_node_days
    return job.goodput * productive(failures + on.spot_interruptions) / productive(failures)


def _check(name: str, value: float) -> None:
    low = 0.0 if name in _MAY_BE_ZERO else 1e-9
    high = 1.0 if name in _SHARES else 1e9
    if not low <= value <= high:
        raise InputError(f"--own {name}", value=value, remedy=f"must be from {low:g} to {high:g}")


def _given(name: str, value: float) -> Assumption:
    unit = _figures()["figures"].get(name, {"unit": "USD"})["unit"]
    return Assumption(name=name, value=value, unit=unit, date="", source="given")


def _defaults(cluster: Cluster) -> dict[str, Assumption]:
    data = _figures()
    known = {name: Assumption(name=name, **entry) for name, entry in data["figures"].items()}
    if (entry := data["server_usd_per_gpu"].get(cluster.gpu.name)) is not None:
        known["server_usd_per_gpu"] = Assumption(name="server_usd_per_gpu", unit="USD a GPU", **entry)
    if (price := price_usd_per_gpu_h(cluster)) is not None:
        source = "the plan's, else the catalog's dated list price (rightsizer gpus)"
        known["on_demand_usd_per_gpu_h"] = Assumption(
            name="on_demand_usd_per_gpu_h", value=price, unit="USD a GPU-hour", date="", source=source
        )
    return known


@cache
def _figures() -> Mapping[str, Any]:
    figures: Mapping[str, Any] = json.loads(packaged.text("ownership.json"))
    return figures
