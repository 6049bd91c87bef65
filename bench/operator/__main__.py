"""Scale of the operator: 1,000 nodes and 2,000 plans on a real API server, against a bare client.

    python -m bench.operator                        # needs root; takes the machine for a while
    python -m bench.operator --nodes 50 --plans 100

The API server, its controllers, KWOK, the operator and this client share one machine. Throughput is
therefore a ratio to a bare client that creates the same children in the same run. The other figures
depend on the load average, which is reported with them.
"""

import argparse
import asyncio
import collections
import contextlib
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.operator import lab, population
from bench.operator.api import BenchClient, connected
from bench.operator.lab import Operator

LOG = logging.getLogger("bench")
RESULTS = Path(__file__).resolve().parents[1] / "results" / "operator.json"
BARE, PLANS = "bench-bare", "bench-plans"
HALVES = 2
KINDS = 27  # of plans
TIMEOUT_S = 1800
GOALS = {
    "launches per s / bare client's": ("ratio", ">=", 0.6),
    "create to Job, p99, at a tenth of that rate": ("latency_p99_s", "<=", 1.0),
    "start-up with all plans present": ("startup_s", "<=", 20.0),
    "resident memory": ("rss_mib", "<=", 200.0),
    "API writes per launch": ("writes_per_launch", "<=", 12.0),
    "API writes per idle plan and hour": ("writes_per_idle_hour", "<=", 0.0),
    "missed events": ("missed", "<=", 0.0),
}


async def until(what: str, done, *, every_s: float = 0.2) -> float:
    """Seconds until `done()` is true."""
    began_s = time.monotonic()
    while not await done():
        if time.monotonic() - began_s > TIMEOUT_S:
            sys.exit(f"{what}: not within {TIMEOUT_S} s")
        await asyncio.sleep(every_s)
    return time.monotonic() - began_s


class Spent:
    """Processor time of each program while a client launches."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._seconds: dict[str, collections.Counter[str]] = {}
        self._launches: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def by(self, who: str, *, launches: int, operator: Operator | None = None) -> Iterator[None]:
        """Add the processor time spent inside the block."""
        before = self._now(operator)
        yield
        self._seconds.setdefault(who, collections.Counter()).update(self._now(operator) - before)
        self._launches[who] += launches
        LOG.info("%s: ms of processor a launch: %s", who, self.ms_per_launch()[who])

    def ms_per_launch(self) -> dict[str, dict[str, float]]:
        """Milliseconds a launch, by client and program, the largest first; less than 1 ms is left out."""
        return {
            who: {
                name: round(1000 * seconds / self._launches[who], 1)
                for name, seconds in spent.most_common()
                if 1000 * seconds >= self._launches[who]
            }
            for who, spent in self._seconds.items()
        }

    def _now(self, operator: Operator | None) -> collections.Counter[str]:
        spent = lab.processor_s(self._kubeconfig)
        return spent + collections.Counter({"operator": operator.cpu_s()} if operator else {})


async def bare(api: BenchClient, first: int, count: int, nodes: int) -> float:
    """Seconds that a bare client takes to create the children of `count` plans."""
    made = [population.children(population.plan(BARE, f"kind{k:02}x", k), nodes) for k in range(KINDS)]
    names = [(f"b{first + i:04}x", i % KINDS) for i in range(count)]
    sets = [[population.renamed(c, f"kind{k:02}x", name) for c in made[k]] for name, k in names]

    async def write(children):
        for child in children:
            await api.create(child)

    return await api.each([lambda one=one: write(one) for one in sets])


async def launched(api: BenchClient, operator: Operator, there: int, count: int, spent: "Spent") -> float:
    """Seconds from the first new Job to the last, for `count` plans that exist when the operator starts."""

    async def first_job():
        return await api.count("Job", PLANS) > there

    async def every():
        return await api.count("Job", PLANS) >= there + count

    await until("the first Job", first_job, every_s=0.25)
    first_s, already = time.monotonic(), await api.count("Job", PLANS) - there
    with spent.by("operator", launches=max(1, count - already), operator=operator):
        await until("the last Job", every, every_s=0.25)
    return (time.monotonic() - first_s) * count / max(1, count - already)


async def cleared(api: BenchClient) -> None:
    """Delete the bare client's Jobs, and wait for their pods, which hold GPUs until they end."""
    for kind in ("Job", "ReplicaSet"):
        await api.clear(kind, BARE)

    async def none():
        return not await api.count("Pod", BARE)

    await until("the bare client's pods", none, every_s=1)


async def finished(api: BenchClient, count: int) -> float:
    """Seconds that it takes to create `count` finished plans without children."""
    kinds = [population.finished(PLANS, f"kind{k:02}x", k) for k in range(KINDS)]
    plans = [population.renamed(kinds[i % KINDS], f"kind{i % KINDS:02}x", f"f{i:04}") for i in range(count)]
    return await api.each([lambda one=one: api.create_finished(one) for one in plans])


async def settled(operator: Operator, plans: int) -> float:
    """Seconds until every plan is reconciled and Running."""

    async def done():
        metrics = operator.metrics()
        running = operator.states().get("Running", 0) if metrics else 0
        return running >= plans and not metrics["rightsizer_operator_queue"]

    return await until("every plan Running", done, every_s=0.5)


async def latency(api: BenchClient, first: int, count: int, per_s: float) -> list[float]:
    """Seconds from `create` to the Job's watch event, for plans created at a rate."""
    seen: dict[str, float] = {}
    watching = asyncio.create_task(api.jobs_seen(PLANS, seen))
    await asyncio.sleep(2)
    created: dict[str, float] = {}
    for index in range(first, first + count):
        raw = population.plan(PLANS, f"p{index:04}", index)
        created[raw["metadata"]["name"]] = time.monotonic()
        await api.create(raw)
        await asyncio.sleep(max(0.0, 1 / per_s - (time.monotonic() - created[raw["metadata"]["name"]])))

    async def all_seen():
        return created.keys() <= seen.keys()

    await until("the last of the slow ones", all_seen)
    watching.cancel()
    return sorted(seen[name] - when for name, when in created.items())


async def missed(api: BenchClient, plans: int) -> int:
    """Plans without exactly one Job, or (every 20th) not suspended after the request."""
    stopped = [f"p{index:04}" for index in range(0, plans, 20)]
    await api.each(
        [
            lambda name=name: api.patch("TrainingPlan", PLANS, name, {"spec": {"suspend": True}})
            for name in stopped
        ]
    )
    wrong: set[str] = set()

    async def none():
        jobs = await api.every("Job", PLANS)
        counts: dict[str, int] = {}
        held = set()
        for job in jobs:
            name = job["metadata"]["labels"]["rightsizer.dev/plan"]
            counts[name] = counts.get(name, 0) + 1
            held |= {name} if job["spec"].get("suspend") else set()
        wrong.clear()
        wrong.update(f"p{i:04}" for i in range(plans) if counts.get(f"p{i:04}", 0) != 1)
        wrong.update(held ^ set(stopped))
        return not wrong

    try:
        await asyncio.wait_for(until("suspensions", none, every_s=2), timeout=300)
    except TimeoutError:
        LOG.warning("missed: %s", sorted(wrong)[:10])
    return len(wrong)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile: the smallest value with at least that share at or below it."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


async def run(kubeconfig: Path, args: argparse.Namespace) -> dict[str, object]:
    """Run the benchmark."""
    async with connected(kubeconfig) as api:
        for name in (BARE, PLANS):
            await api.create({"kind": "Namespace", "metadata": {"name": name}})
        took_s = await api.create_all(population.node(index) for index in range(args.nodes))
        LOG.info("%d nodes in %.0f s", args.nodes, took_s)
        half = args.plans // HALVES
        total = half * HALVES
        bare_s, ours_s, writes, spent = [], [], [], Spent(kubeconfig)
        for turn in range(HALVES):
            with spent.by("bare", launches=half):
                bare_s.append(await bare(api, turn * half, half, args.nodes))
            LOG.info("bare client: %.1f launches/s, load %.1f", half / bare_s[-1], lab.load()[0])
            await cleared(api)
            names = range(turn * half, (turn + 1) * half)
            await api.create_all(population.plan(PLANS, f"p{i:04}", i) for i in names)
            with lab.operator(kubeconfig, PLANS) as operator:
                ours_s.append(await launched(api, operator, turn * half, half, spent))
                LOG.info("operator: %.1f launches/s, load %.1f", half / ours_s[-1], lab.load()[0])
                await settled(operator, (turn + 1) * half)
                writes.append(operator.writes() / half)
                LOG.info("%.1f writes a launch, %.0f reads", writes[-1], operator.reads())
        ours_per_s, bare_per_s = total / sum(ours_s), total / sum(bare_s)
        took_s = await finished(api, args.finished)
        LOG.info("%d finished plans in %.0f s", args.finished, took_s)
        there = total + args.finished
        with lab.operator(kubeconfig, PLANS) as operator:

            async def looked():
                metrics = operator.metrics()
                seen = metrics.get("rightsizer_operator_reconcile_seconds_count", 0)
                return seen >= there and not metrics["rightsizer_operator_queue"]

            await until("every plan looked at", looked)
            startup_s, startup_load = time.monotonic() - operator.began_s, lab.load()[0]
            startup_cpu_s, startup_writes = operator.cpu_s(), operator.writes()
            LOG.info("start-up %.1f s (%.1f s of processor)", startup_s, startup_cpu_s)
            LOG.info("%.0f writes at start-up", startup_writes)
            before = operator.writes()
            await asyncio.sleep(args.idle_s)
            idle = operator.writes() - before
            LOG.info("idle: %.0f writes in %.0f s", idle, args.idle_s)
            slow = await latency(api, total, args.slow, ours_per_s / 10)
            lost = await missed(api, total + args.slow)
            rss_mib = operator.rss_bytes() / 2**20
    return {
        "cores": os.cpu_count(),
        "nodes": args.nodes,
        "plans": total,
        "ratio": ours_per_s / bare_per_s,
        "operator_launches_per_s": ours_per_s,
        "bare_launches_per_s": bare_per_s,
        "latency_p50_s": quantile(slow, 0.5),
        "latency_p99_s": quantile(slow, 0.99),
        "latency_plans": len(slow),
        "startup_s": startup_s,
        "startup_plans": there,
        "startup_cpu_s": startup_cpu_s,
        "startup_writes": startup_writes,
        "startup_load": startup_load,
        "rss_mib": rss_mib,
        "writes_per_launch": max(writes),
        "processor_ms_per_launch": spent.ms_per_launch(),
        "writes_per_idle_hour": idle / there * 3600 / args.idle_s,
        "missed": lost,
        "load": lab.load(),
    }


def table(results: dict[str, object]) -> str:
    """A table of the goals and measurements."""
    first = f"{results['nodes']} nodes x 8 GPUs, {results['plans']} plans launched"
    second = f"{results['startup_plans']} there at start-up"
    lines = [f"{first}, {second}; {results['cores']} cores, load average {results['load'][1]:.1f}"]
    for label, (key, sense, goal) in GOALS.items():
        value = results[key]
        met = value >= goal if sense == ">=" else value <= goal
        lines.append(f"{label:46} {value:10.2f}   goal {sense} {goal:g}{'' if met else '   NOT MET'}")
    return "\n".join(lines)


@contextlib.contextmanager
def laboratory(name: str) -> Iterator[Path]:
    """The kubeconfig of a new cluster with our CRD, whose nodes KWOK plays."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    with lab.cluster(name) as kubeconfig:
        apply = ["kubectl", f"--kubeconfig={kubeconfig}", "apply", "--server-side", "-f"]
        crd = lab.ROOT / "helm" / "rightsizer" / "crds"
        subprocess.run([*apply, crd], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["kubectl", f"--kubeconfig={kubeconfig}", "cordon", "n1"], check=True)
        with lab.kwok(name, kubeconfig):
            yield kubeconfig


def main() -> int:
    """Run, print and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--plans", type=int, default=2000)
    parser.add_argument("--finished", type=int, default=0, help="finished plans that exist at start-up")
    parser.add_argument("--slow", type=int, default=100, help="plans of the latency measurement")
    parser.add_argument("--idle-s", type=float, default=300.0)
    parser.add_argument("--cluster", default="bench", help="name of the cluster that is created")
    parser.add_argument("--kubeconfig", type=Path, help="use a running cluster instead")
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    with laboratory(args.cluster) as kubeconfig:
        results = asyncio.run(run(kubeconfig, args))
    lab.dump(args.json, results)
    sys.stdout.write(table(results) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
