"""Speed of the engine: layouts a second, whole plans, and the command from cold.

Run it on an idle machine, on one core: `taskset -c 0 python -m bench.speed [--json FILE]`. The processor's
time is printed with the wall time, because other work affects it less; `chrt -f 5` keeps other work off the
core, but not out of its caches. The ratio to Calculon is measured if its checkout exists (`../calculon`, or
--calculon FOLDER; with its dependencies in its .venv), else to a figure that was once recorded.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from bench.results import RESULTS, write_json

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Precision, Workload
from rightsizer_engine.search.gpu_counts import pairs
from rightsizer_engine.search.pricing.context import families_context
from rightsizer_engine.search.pricing.layout_space import families, layouts
from rightsizer_engine.search.pricing.rows import fit_layouts, price
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Request
from rightsizer_local.machine import cpu

DAY_S = 86400.0
CALCULON_RECORDED_S_PER_LAYOUT = 0.8e-3
"""Calculon on two cores with its debug logging off, infeasible layouts included; feasible take 14-25 ms."""


def request(model: str, tokens: float, days: float, gpus: tuple[str, ...], **given: object) -> Request:
    """A pretraining request, under Megatron unless the framework is given."""
    sequence, batch = int(str(given["sequence"])), int(str(given["batch"]))
    workload = Workload(
        tokens=tokens,
        sequence_tokens=sequence,
        global_batch_sequences=batch,
        precision=Precision(str(given.get("precision", "bf16"))),
    )
    return Request(
        architecture=lookup.model(model),
        workload=workload,
        framework=framework(str(given.get("framework", "megatron"))),
        clusters=tuple(lookup.cluster(gpu) for gpu in gpus),
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
    "Llama 3.1 405B, 15.6T tokens in 80 days, <= 16,384 H100, refused": lambda: request(
        "meta-llama/Llama-3.1-405B",
        15.6e12,
        80,
        ("H100",),
        sequence=8192,
        batch=2048,
        most=16384,
        framework="torchtitan",
    ),
    "Llama 2 70B, 1T tokens in 2 days, <= 1,024 of four GPU types, refused": lambda: request(
        "meta-llama/Llama-2-70b-hf",
        1e12,
        2,
        ("H100", "H200", "B200", "A100-SXM4-80GB"),
        sequence=4096,
        batch=1024,
        most=1024,
    ),
}
"""Refusals search beyond the limit too, to say how many GPUs would be enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The least of several runs: seconds on the wall, seconds of the processor."""

    wall_s: float
    cpu_s: float


def fastest(action: Callable[[], object], times: int = 5) -> Taken:
    """The least seconds of several runs of the work."""
    wall, cpu = [], []
    for _ in range(times):
        start, worked = time.perf_counter(), _cpu_s()
        action()
        wall.append(time.perf_counter() - start)
        cpu.append(_cpu_s() - worked)
    return Taken(wall_s=min(wall), cpu_s=min(cpu))


def _cpu_s() -> float:
    """Seconds of the processor that this process and its children took so far."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in own)


def layouts_taken() -> tuple[Taken, int]:
    """Layouts of 405B, each with memory, time, finish and cost, over counts of GPUs; nothing is kept between.

    The families and their legal layouts are made before; what families have in common is in the figure.
    """
    request = PLANS["Llama 3.1 405B, 15.6T tokens, <= 16,384 H100"]()
    space = families(request.architecture, request.workload, request.clusters[0], request.framework)
    family, gpus = pairs(space.unit, np.zeros(len(space)), np.arange(1024, 16385, 128))
    columns, legal = layouts(space.take(family), gpus, request.workload, batch_tolerance=0.05)
    chosen = np.flatnonzero(legal)
    columns, family, gpus = columns.take(chosen), family[chosen], gpus[chosen]

    def both() -> None:
        context = families_context(request, request.clusters[0], space)
        fit_layouts(context, family, columns)
        price(context, family, gpus, columns)

    return fastest(both), chosen.size


def cold_start() -> Taken:
    """The whole command from a new process: imports, catalog, plan and table."""
    command = [
        str(Path(sys.executable).with_name("rightsizer")),
        "plan",
        "--model",
        "meta-llama/Llama-3.1-8B",
    ]
    command += ["--model", "meta-llama/Llama-3.1-8B", "--tokens", "100B", "--deadline", "72h"]
    command += ["--gpu", "H100", "--max-gpus", "256"]
    return fastest(lambda: subprocess.run(command, check=True, capture_output=True))


def plans() -> dict[str, float]:
    """The whole plans: seconds, on the wall and of the processor: asked first, and again."""
    figures = {}
    for name, question in PLANS.items():
        first = [json.loads(_told("-m", "bench.speed", "--first", name)) for _ in range(5)]
        taken = Taken(wall_s=min(f["wall_s"] for f in first), cpu_s=min(f["cpu_s"] for f in first))
        asked = question()
        answer = size(asked)
        again = fastest(partial(size, asked))
        figures |= {f"{name}: wall_s": taken.wall_s, f"{name}: cpu_s": taken.cpu_s}
        figures |= {f"{name}, asked again: wall_s": again.wall_s, f"{name}, asked again: cpu_s": again.cpu_s}
        outcome = f"{type(answer).__name__}, {answer.layouts_evaluated:,} layouts; again {again.cpu_s:.3f} s"
        print(f"{taken.wall_s:12.3f} s, {taken.cpu_s:.3f} s of CPU: {name}: {outcome}")
    return figures


def _told(*words: str) -> str:
    return subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True).stdout


def first(name: str) -> Taken:
    """The first plan of this process, after imports: catalog and parameters are still to be read."""
    return fastest(lambda: size(PLANS[name]()), times=1)


def calculon_s(folder: Path) -> float | None:
    """Seconds of the processor a layout by the Calculon in a folder, with its own .venv if it has one."""
    if not (folder / "bin" / "calculon").exists():
        return None
    own = folder / ".venv" / "bin" / "python"
    python = str(own if own.exists() else sys.executable)
    script = Path(__file__).with_name("calculon.py")
    done = subprocess.run([python, str(script), str(folder)], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return float(found["cpu_s"] / found["layouts"])


def rate(other_s: float | None) -> dict[str, float]:
    """Layouts a second, and how many times Calculon's."""
    taken, rows = layouts_taken()
    per_s = rows / taken.cpu_s
    print(f"{per_s:12,.0f} layouts/s of one core ({rows / taken.wall_s:,.0f} on the wall), {rows:,} of 405B")
    other = other_s or CALCULON_RECORDED_S_PER_LAYOUT
    source = "measured here" if other_s else "recorded once, not run here"
    print(f"{per_s * other:12,.0f} times Calculon's {1 / other:,.0f} layouts/s ({source})")
    figures = {"layouts_per_cpu_s": per_s, "layouts_per_wall_s": rows / taken.wall_s}
    return figures | ({"calculon_layouts_per_cpu_s": 1 / other_s} if other_s else {})


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULTS / "speed.json")
    parser.add_argument("--calculon", type=Path, default=Path("../calculon"), help="its checkout, if any")
    parser.add_argument("--first", choices=PLANS, help="ask this plan once, here; print its seconds")
    given = parser.parse_args()
    if given.first:
        print(json.dumps(asdict(first(given.first))))
        return
    # the same name may stand for cores of which one is twice as fast as the other
    processor = f"{cpu('model name')}, family {cpu('cpu family')}, model {cpu('model')}"
    print(f"{processor}, one core")
    figures: dict[str, object] = {"processor": processor, **plans()}
    figures |= rate(calculon_s(given.calculon.resolve()))
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    print(f"{mebibytes:12.0f} MiB resident at most")
    cold = cold_start()
    print(f"{cold.wall_s:12.3f} s, {cold.cpu_s:.3f} s of CPU: rightsizer plan, from cold")
    figures |= {"cold_start_wall_s": cold.wall_s, "cold_start_cpu_s": cold.cpu_s}
    figures |= {"resident_mebibytes": mebibytes, "load_average": os.getloadavg()[0]}
    write_json(given.json, figures)


if __name__ == "__main__":
    main()
