"""Seconds that a plan waits for its size while ten plans that take minutes to size arrive each second.

    python -m bench.sizing [--seconds 30]

The operator's own sizing processes, without an API server: the reaction is from the question to the answer.
The huge plans are of one namespace, the measured ones of another, and no two questions are equal. A second
run without huge plans gives the ratio. The lag is the longest time in which the event loop did not run.
"""

import argparse
import asyncio
import contextlib
import datetime as dt
import math
import time
from collections.abc import Sequence

from rightsizer_api import validate
from rightsizer_api.sizing import resolve
from rightsizer_operator.reconcile.size import decide
from rightsizer_operator.reconcile.sizing_response import NotSizedYetError, SizeRequest
from rightsizer_operator.runtime.sizing import Sizing, sizing_lanes
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
INVENTORY = Inventory(
    nodes=tuple(ClusterNode(name=f"n{i}", product="NVIDIA-H100-80GB-HBM3", gpus=8) for i in range(300))
)
HUGE_PER_S, TICK_S, LONGEST_S, BUDGET_S = 10, 0.01, 60.0, 30.0
HUGE = {"model": {"name": "deepseek-v3"}, "budget": {"maxUSD": 1000}}
SMALL = {"model": {"name": "gpt2"}, "resources": {"maxGPUs": 8}}


def size_request(spec: dict[str, object], batch: int) -> SizeRequest:
    """The first question of a plan with this batch."""
    workload = {"tokens": "10B", "sequenceLength": 1024, "globalBatchSequences": batch}
    plan = {
        "apiVersion": "rightsizer.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": "demo", "namespace": "team"},
        "spec": {"workload": workload, "deadline": {"finishWithin": "30d"}, **spec},
    }

    def size(asked: SizeRequest) -> None:
        raise NotSizedYetError(asked)

    try:
        decide(resolve(validate(plan)), inventory=INVENTORY, now=NOW, created=NOW, size=size)
    except NotSizedYetError as missing:
        return missing.size_request
    raise AssertionError("it needs no search")


async def reactions(seconds: int, huge_per_s: int) -> tuple[list[float], float]:
    """Seconds until one small plan a second has its size, and the event loop's longest lag."""
    sizing, cached_response, lags = Sizing(sizing_lanes(BUDGET_S), budget_s=BUDGET_S), {}, [0.0]
    sizing.on_response = lambda key: cached_response.setdefault(key, asyncio.Event()).set()
    huge = [size_request(HUGE, 15360 + 8 * n) for n in range(seconds * huge_per_s)]
    small = [size_request(SMALL, 256 + 8 * n) for n in range(seconds + 1)]

    async def tick() -> None:
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(TICK_S)
            lags.append(time.monotonic() - began_s - TICK_S)

    async def react(n: int) -> float:
        key, began_s = ("other", f"small-{n}"), time.monotonic()
        cached_response[key] = asyncio.Event()
        sizing.ask(key, 1, small[n])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(cached_response[key].wait(), LONGEST_S)
        return time.monotonic() - began_s

    sizing.start()
    await react(seconds)  # the processes have started
    ticking, small_ones = asyncio.create_task(tick()), []
    for second in range(seconds):
        for n in range(huge_per_s):
            sizing.ask(("team", f"huge-{second}-{n}"), 1, huge[second * huge_per_s + n])
        small_ones.append(asyncio.create_task(react(second)))
        await asyncio.sleep(1.0)
    found = [await each for each in small_ones]
    ticking.cancel()
    sizing.close()
    return found, max(lags)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile: the smallest value with at least that share at or below it."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def main() -> None:
    """Run both and print the quantiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30)
    seconds = parser.parse_args().seconds
    alone, _ = asyncio.run(reactions(seconds, 0))
    beside, lag_s = asyncio.run(reactions(seconds, HUGE_PER_S))
    for name, found in (("alone", alone), (f"beside {HUGE_PER_S} huge plans a second", beside)):
        print(f"{name:32} p50 {quantile(found, 0.5):.2f} s, p99 {quantile(found, 0.99):.2f} s")
    print(
        f"ratio of the p99: {quantile(beside, 0.99) / quantile(alone, 0.99):.1f}; longest lag {lag_s:.2f} s"
    )


if __name__ == "__main__":
    main()
