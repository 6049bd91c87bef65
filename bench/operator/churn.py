"""Half an hour of changes to 2,000 plans: growth of memory, missed changes, children left behind.

    python -m bench.operator.churn                                          # needs root; most of an hour
    python -m bench.operator.churn --plans 40 --finished 0 --churn-s 120    # small

Every second one plan is created, deleted, suspended, resumed, or gets another deadline. A ledger keeps the
requested state of each plan; at the end the cluster must agree with it.
"""

import argparse
import asyncio
import collections
import itertools
import logging
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench.operator import lab, population
from bench.operator.__main__ import PLANS, RESULTS, finished, laboratory, settled, until
from bench.operator.api import BenchClient, connected
from bench.operator.lab import Operator
from bench.results import write_json

LOG = logging.getLogger("bench")
CHILDREN = ("Job", "ReplicaSet", "Service", "Secret", "NetworkPolicy", "Pod")
KINDS = ("create", "suspend", "deadline", "resume", "delete")
DEADLINES = ("48h", "72h", "5d", "6d")
SEED, SAMPLE_S, SETTLES_S, WARM = 20, 30.0, 300.0, 1 / 3
PLAN = "rightsizer.dev/plan"

Ledger = dict[str, bool]  # live plans, and whether they are suspended


def chosen(kind: str, ledger: Ledger, picks: random.Random) -> str | None:
    """A plan to which this change applies."""
    fits = {"suspend": (False,), "resume": (True,)}.get(kind, (False, True))
    names = [name for name, suspended in ledger.items() if suspended in fits]
    return picks.choice(names) if names else None


async def change(
    api: BenchClient, kind: str, ledger: Ledger, numbers: "itertools.count[int]", picks: random.Random
) -> None:
    """One change, in the cluster and in the ledger."""
    if kind == "create":
        number = next(numbers)
        name = f"p{number:04}"
        await api.create(population.plan(PLANS, name, number))
        ledger[name] = False
    elif (found := chosen(kind, ledger, picks)) is None:
        return
    elif kind == "delete":
        await api.delete("TrainingPlan", PLANS, found)
        del ledger[found]
    else:
        suspend = {"suspend": kind == "suspend"} if kind != "deadline" else {}
        deadline = {} if suspend else {"deadline": {"finishWithin": picks.choice(DEADLINES)}}
        await api.patch("TrainingPlan", PLANS, found, {"spec": suspend | deadline})
        ledger |= dict.fromkeys([found] if suspend else [], kind == "suspend")


async def churned(
    api: BenchClient, operator: Operator, ledger: Ledger, *, seconds: float, per_s: float
) -> tuple[list[tuple[float, float]], int]:
    """Make changes for so many seconds; resident MiB by second, and the number of changes."""
    picks, numbers = random.Random(SEED), itertools.count(len(ledger))  # noqa: S311 -- the same each time
    samples: list[tuple[float, float]] = []
    began_s = time.monotonic()
    for count in itertools.count():
        passed_s = time.monotonic() - began_s
        if not samples or passed_s - samples[-1][0] >= SAMPLE_S:
            samples.append((passed_s, operator.rss_bytes("VmRSS") / 2**20))
            LOG.info("%.0f s, %d changes, %.1f MiB", passed_s, count, samples[-1][1])
        if passed_s >= seconds:
            return samples, count
        await change(api, KINDS[count % len(KINDS)], ledger, numbers, picks)
        await asyncio.sleep(max(0.0, began_s + (count + 1) / per_s - time.monotonic()))
    raise AssertionError


def slope_mib_per_h(samples: Sequence[tuple[float, float]]) -> float:
    """The growth of memory after the first third, in which caches fill."""
    from_s = samples[-1][0] * WARM
    seconds, mib = zip(*(each for each in samples if each[0] >= from_s), strict=True)
    return float(np.polyfit(np.array(seconds) / 3600.0, mib, 1)[0])


def wrong(
    plans: Sequence[Mapping[str, Any]], jobs: Sequence[Mapping[str, Any]], ledger: Mapping[str, bool]
) -> set[str]:
    """Live plans whose last change has no effect, or without exactly one Job as requested."""
    seen = {
        each["metadata"]["name"]
        for each in plans
        if each.get("status", {}).get("observedGeneration") == each["metadata"]["generation"]
    }
    counts = collections.Counter(job["metadata"]["labels"][PLAN] for job in jobs)
    held = {job["metadata"]["labels"][PLAN] for job in jobs if job["spec"].get("suspend")}
    return {
        name
        for name, suspended in ledger.items()
        if name not in seen or counts[name] != 1 or (name in held) != suspended
    }


async def lost(api: BenchClient, ledger: Mapping[str, bool]) -> tuple[set[str], dict[str, int]]:
    """Plans that are wrong and children without a plan, after time to settle."""
    found: tuple[set[str], dict[str, int]] = set(), {}

    async def none() -> bool:
        nonlocal found
        plans, jobs = await api.every("TrainingPlan", PLANS), await api.every("Job", PLANS)
        orphans = {}
        for kind in CHILDREN:
            owners = [each["metadata"].get("labels", {}).get(PLAN) for each in await api.every(kind, PLANS)]
            if stray := sum(owner is not None and owner not in ledger for owner in owners):
                orphans[kind] = stray
        found = wrong(plans, jobs, ledger), orphans
        return not any(found)

    try:
        await asyncio.wait_for(until("the last change", none, every_s=5), timeout=SETTLES_S)
    except TimeoutError:
        LOG.warning("wrong: %s; orphans: %s", sorted(found[0])[:10], found[1])
    return found


async def run(kubeconfig: Path, args: argparse.Namespace) -> dict[str, object]:
    """Fill the cluster, change it, compare it with the ledger."""
    async with connected(kubeconfig) as api:
        await api.create({"kind": "Namespace", "metadata": {"name": PLANS}})
        await api.create_all(population.node(index) for index in range(args.nodes))
        await finished(api, args.finished)
        names = [f"p{index:04}" for index in range(args.plans)]
        await api.create_all(population.plan(PLANS, name, index) for index, name in enumerate(names))
        ledger: Ledger = dict.fromkeys(names, False)
        with lab.operator(kubeconfig, PLANS) as operator:
            await settled(operator, args.plans)
            LOG.info("%d plans run, %.0f MiB", args.plans, operator.rss_bytes("VmRSS") / 2**20)
            samples, changes = await churned(api, operator, ledger, seconds=args.churn_s, per_s=args.per_s)
            LOG.info("%d changes, %.0f MiB", changes, samples[-1][1])
            missed, orphans = await lost(api, ledger)
            peak_mib = operator.rss_bytes() / 2**20
    return {
        "cores": os.cpu_count(),
        "nodes": args.nodes,
        "plans": args.plans + args.finished,
        "live_plans": args.plans,
        "seconds": round(samples[-1][0]),
        "changes": changes,
        "rss_first_mib": round(samples[0][1], 1),
        "rss_last_mib": round(samples[-1][1], 1),
        "rss_mib": round(peak_mib, 1),
        "rss_mib_per_h": round(slope_mib_per_h(samples), 1),
        "missed": len(missed),
        "orphans": sum(orphans.values()),
        "load": [round(each, 1) for each in lab.load()],
    }


def main() -> int:
    """Run, print and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--plans", type=int, default=300, help="plans that run")
    parser.add_argument("--finished", type=int, default=1700, help="plans that have finished")
    parser.add_argument("--churn-s", type=float, default=1800.0)
    parser.add_argument("--per-s", type=float, default=1.0, help="changes a second")
    parser.add_argument("--cluster", default="benchchurn", help="name of the cluster that is created")
    parser.add_argument("--json", type=Path, default=RESULTS.with_name("operator_churn.json"))
    args = parser.parse_args()
    with laboratory(args.cluster) as kubeconfig:
        results = asyncio.run(run(kubeconfig, args))
    write_json(args.json, results)
    sys.stdout.write(args.json.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
