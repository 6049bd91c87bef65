"""How fast the engine is: layouts a second, whole plans, and the command from cold.

Run it on an idle machine, on one core: `taskset -c 0 python bench/speed.py [--json FILE]`. Calculon is not
run here: its figure was measured once on such a machine, and the ratio is to that.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rightsizer import catalog
from rightsizer.framework import framework
from rightsizer.outcome import Request
from rightsizer.plan import plan
from rightsizer.pricing import fit_layouts, ground, price
from rightsizer.space import families, layouts
from rightsizer.workload import Precision, Workload

DAY_S = 86400.0
CALCULON_S_PER_LAYOUT = 0.8e-3
"""Calculon on two cores with its debug logging off, infeasible layouts included; feasible take 14-25 ms."""


def request(model: str, tokens: float, days: float, gpus: tuple[str, ...], **given: object) -> Request:
    """A pretraining request under Megatron."""
    sequence, batch = int(str(given["sequence"])), int(str(given["batch"]))
    workload = Workload(
        tokens=tokens,
        sequence_tokens=sequence,
        global_batch_sequences=batch,
        precision=Precision(str(given.get("precision", "bf16"))),
    )
    return Request(
        architecture=catalog.model(model),
        workload=workload,
        framework=framework("megatron"),
        clusters=tuple(catalog.cluster(gpu) for gpu in gpus),
        deadline_s=days * DAY_S,
        max_gpus=int(str(given["most"])),
    )


PLANS: dict[str, Callable[[], Request]] = {
    "Llama 3.1 405B, 15.6T tokens, <= 16,384 H100": lambda: request(
        "meta-llama/Llama-3.1-405B", 15.6e12, 120, ("H100",), sequence=8192, batch=2048, most=16384
    ),
    "DeepSeek-V3, 14.8T tokens, <= 8,192 H800": lambda: request(
        "deepseek-ai/DeepSeek-V3",
        14.8e12,
        60,
        ("H800",),
        sequence=4096,
        batch=15360,
        most=8192,
        precision="fp8",
    ),
    "Llama 2 70B, 1T tokens, <= 1,024 of four GPU types": lambda: request(
        "meta-llama/Llama-2-70b-hf",
        1e12,
        60,
        ("H100", "H200", "B200", "A100-SXM4-80GB"),
        sequence=4096,
        batch=1024,
        most=1024,
    ),
}


def fastest_s(action: Callable[[], object], times: int) -> float:
    """The fastest of several runs: what the work takes when nothing disturbs it."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return min(taken)


def layouts_per_s() -> tuple[float, int]:
    """Layouts of 405B, each with memory and time by cause and finish, over counts of GPUs."""
    asked = PLANS["Llama 3.1 405B, 15.6T tokens, <= 16,384 H100"]()
    some = families(asked.architecture, asked.workload, asked.clusters[0], asked.framework)
    counts = np.arange(1024, 16385, 512)
    family = np.tile(np.arange(len(some)), counts.size)
    gpus = np.repeat(counts, len(some))
    columns, legal = layouts(some.take(family), gpus, asked.workload, batch_tolerance=0.05)
    chosen = np.flatnonzero(legal)
    columns, family, gpus = columns.take(chosen), family[chosen], gpus[chosen]
    rows = chosen.size

    def both() -> None:
        base = ground(asked, asked.clusters[0], some)
        fit_layouts(base, family, columns)
        price(base, family, gpus, columns)

    return rows / fastest_s(both, 5), rows


def cold_start_s() -> float:
    """The whole command from a new process: imports, catalog, plan and table."""
    command = [sys.executable, "-m", "rightsizer_cli.main", "plan", "--model", "meta-llama/Llama-3.1-8B"]
    command += ["--tokens", "100B", "--deadline", "72h", "--gpu", "H100", "--max-gpus", "256"]
    return fastest_s(lambda: subprocess.run(command, check=True, capture_output=True), 5)


def main() -> None:
    """Print the table; write it as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    target = parser.parse_args().json
    rate, rows = layouts_per_s()
    figures: dict[str, float] = {"layouts_per_s": rate}
    print(f"{rate:12,.0f} layouts/s, one core, {rows:,} layouts of 405B with memory and time")
    print(
        f"{rate * CALCULON_S_PER_LAYOUT:12,.0f} times Calculon's {1 / CALCULON_S_PER_LAYOUT:,.0f} layouts/s"
    )
    for name, question in PLANS.items():
        asked = question()
        answer = plan(asked)
        taken = fastest_s(lambda asked=asked: plan(asked), 5)  # type: ignore[misc]
        figures[name] = taken
        outcome = type(answer).__name__
        print(f"{taken:12.3f} s  {name}: {outcome}, {answer.layouts_evaluated:,} layouts")
    figures["cold_start_s"] = cold_start_s()
    print(f"{figures['cold_start_s']:12.3f} s  rightsizer plan, from cold")
    figures["memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    print(f"{figures['memory_bytes'] / 2**20:12.0f} MiB resident at most")
    if target:
        target.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
