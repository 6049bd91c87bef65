"""Two-stage sizing against a fixed size: the share of simulated truths in time, and the GPU-hours.

    python -m bench.opening [--draws 10000] [--json FILE]

A truth is drawn job by job, from deviations as believed and 1.7 times as large: the step time's error, an
error of each size's rate, downtime, and the noise of each look. The policy is implemented again here, one job
at a time, so that independent code checks the engine's figure (rightsizer_engine.search.opening: fixed draws,
arrays). `P` must lie within 3 points of the stated probability.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from bench.results import RESULTS, write_json

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Precision, Workload
from rightsizer_engine.estimate.uncertainty import WIDE, quantile, z_quantile
from rightsizer_engine.search.cluster_search import ClusterResult, search_cluster
from rightsizer_engine.search.opening import MEASURED_LN, OpeningProblem, choose_opening
from rightsizer_engine.search.staged import opening_problem
from rightsizer_engine.search.types import Request, Staging

DAY_S = 86400.0
SHRINK_MARGIN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case under one scale of deviations: a fixed size, and the opening with its reserve."""

    case: str
    scale: float
    static_gpus: int | None
    static_probability: float
    static_gpu_h: float
    opening_gpus: int
    likely_gpus: int
    reserve_gpus: int
    stated: float
    probability: float
    gpu_h: float
    within_3_points: bool


def main() -> None:
    """Simulate every case under both scales, print the table, write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--json", type=Path, default=RESULTS / "opening.json", metavar="FILE")
    given = parser.parse_args()
    rows = [row for name, make in CASES.items() for row in judge(name, make(), given.draws)]
    print("case, scale: static GPUs, P, GPU-h | opens, likely, reserve, stated P, P, GPU-h")
    for r in rows:
        print(
            f"{r.case}, x{r.scale:g}: {r.static_gpus}, {r.static_probability:.3f}, {r.static_gpu_h:,.0f}"
            f" | {r.opening_gpus}, {r.likely_gpus}, {r.reserve_gpus}, {r.stated:.3f}, {r.probability:.3f},"
            f" {r.gpu_h:,.0f}{'' if r.within_3_points else '  OUTSIDE'}"
        )
    write_json(given.json, {"draws": given.draws, "rows": [asdict(r) for r in rows]})


def judge(name: str, request: Request, draws: int) -> list[Row]:
    """The rows of one case; none if no size meets the deadline."""
    result = search_cluster(request, request.clusters[0])
    if not isinstance(result, ClusterResult):
        print(f"{name}: {result.binding}")
        return []
    fixed = search_cluster(replace(request, elastic=False), request.clusters[0])
    case = opening_problem(result, fixed if isinstance(fixed, ClusterResult) else None)
    found = choose_opening(case, first=int(np.searchsorted(case.sizes.gpus, result.best.row.gpus[0])))
    if found is None:
        print(f"{name}: no opening holds the deadline")
        return []
    return [_row(name, case, *found, scale, draws) for scale in (1.0, WIDE)]


def _row(name: str, case: OpeningProblem, opening: int, staging: Staging, scale: float, draws: int) -> Row:  # noqa: PLR0917
    sizes, constraints, errors = case.sizes, case.constraints, case.errors
    reserve = int(np.searchsorted(sizes.gpus, staging.reserve_gpus))
    normal = np.random.default_rng(17).standard_normal
    ends, gpu_s = np.asarray(
        [
            simulate(case, opening, reserve, lambda sigma: scale * sigma * float(normal()))
            for _ in range(draws)
        ]
    ).T
    total = math.hypot(errors.measurable, errors.unmeasurable)
    enough = np.flatnonzero(
        sizes.finish_s * math.exp(quantile(constraints.confidence) * total) <= constraints.deadline_s
    )
    fixed = int(enough[0]) if enough.size else sizes.gpus.size - 1
    alone_s = sizes.finish_s[fixed] * np.exp(scale * total * normal(draws))
    probability = float(np.mean(ends <= constraints.deadline_s))
    return Row(
        case=name,
        scale=scale,
        static_gpus=int(sizes.gpus[fixed]) if enough.size else None,
        static_probability=round(float(np.mean(alone_s <= constraints.deadline_s)), 4),
        static_gpu_h=round(float(sizes.gpus[fixed] * alone_s.mean() / 3600)),
        opening_gpus=int(sizes.gpus[opening]),
        likely_gpus=staging.likely_gpus,
        reserve_gpus=staging.reserve_gpus,
        stated=round(staging.probability, 4),
        probability=round(probability, 4),
        gpu_h=round(float(gpu_s.mean() / 3600)),
        within_3_points=abs(probability - staging.probability) <= 0.03,
    )


def simulate(
    case: OpeningProblem, opening: int, reserve: int, draw: Callable[[float], float]
) -> tuple[float, float]:
    """The end of one job and its GPU-seconds. `draw(sigma)` is a normal deviate."""
    gpus, constraints, errors = case.sizes.gpus, case.constraints, case.errors
    measurable, unmeasurable = draw(errors.measurable), draw(errors.unmeasurable)
    size_errors = [0.0 if i == opening else draw(errors.between_sizes) for i in range(reserve + 1)]
    takes_s = [
        float(finish_s) * math.exp(measurable + error)
        for finish_s, error in zip(case.sizes.finish_s, size_errors, strict=False)
    ]
    at, left, now_s, gpu_s = opening, 1.0, constraints.start_s, float(gpus[opening]) * constraints.start_s
    for look, look_s in enumerate(constraints.looks_s):
        rate = math.exp(-unmeasurable) / takes_s[at]
        if now_s + left / rate <= look_s:
            break
        trained_s = max(0.0, look_s - now_s)
        left, now_s, gpu_s = left - trained_s * rate, now_s + trained_s, gpu_s + float(gpus[at]) * trained_s
        measured_s = takes_s[at] * math.exp(draw(MEASURED_LN))
        chosen = _choose(case, at, reserve, left, now_s, measured_s, first=look == 0)
        if chosen == at:
            continue
        lead_s = min(constraints.lead_s, left / rate) if chosen > at else 0.0
        left, now_s = left - lead_s * rate, now_s + lead_s + constraints.restart_s
        gpu_s += float(gpus[at]) * lead_s + float(gpus[chosen]) * constraints.restart_s
        at = chosen
    rest_s = left * takes_s[at] * math.exp(unmeasurable)
    return now_s + rest_s, gpu_s + float(gpus[at]) * rest_s


def _choose(  # noqa: PLR0917
    case: OpeningProblem, at: int, reserve: int, left: float, now_s: float, measured_s: float, *, first: bool
) -> int:
    """The fewest GPUs in time at the confidence, else at even odds, else the present number."""
    constraints, finish_s = case.constraints, case.sizes.finish_s
    for z in (z_quantile(constraints.confidence), 0.0):
        for size in range(reserve + 1):
            if size < at and not (first and z):
                continue
            lead_s = constraints.lead_s if size > at else 0.0
            pause_s = 0.0 if size == at else constraints.restart_s
            sigma = math.hypot(MEASURED_LN, 0.0 if size == at else case.errors.between_sizes)
            full_s = measured_s * float(finish_s[size] / finish_s[at])
            need_s = max(0.0, left - lead_s / measured_s) * full_s * math.exp(z * sigma)
            spare_s = constraints.deadline_s - now_s - lead_s - pause_s
            if need_s <= spare_s * (1.0 - SHRINK_MARGIN if size < at else 1.0):
                return size
    return at


def request(model: str, tokens: float, days: float, gpu: str, **given: object) -> Request:
    """A pretraining request of an elastic job."""
    return Request(
        architecture=lookup.model(model),
        workload=Workload(
            tokens=tokens,
            sequence_tokens=int(str(given["sequence"])),
            global_batch_sequences=int(str(given["batch"])),
            precision=Precision(str(given.get("precision", "bf16"))),
        ),
        framework=framework(str(given.get("framework", "megatron"))),
        clusters=(replace(lookup.cluster(gpu), max_gpus=65_536),),
        deadline_s=days * DAY_S,
        elastic=True,
    )


CASES: dict[str, Callable[[], Request]] = {
    "Llama 3.1 8B, 100B tokens, 72 h, H100": lambda: request(
        "meta-llama/Llama-3.1-8B", 1e11, 3, "H100", sequence=8192, batch=512, framework="torchtitan"
    ),
    "Llama 3.1 405B, 15.6T tokens, 90 d, H100": lambda: request(
        "meta-llama/Llama-3.1-405B", 15.6e12, 90, "H100", sequence=8192, batch=2048
    ),
    "Llama 2 70B, 2T tokens, 35 d, A100-80GB": lambda: request(
        "meta-llama/Llama-2-70b-hf", 2e12, 35, "A100-80GB", sequence=4096, batch=1024
    ),
    "Llama 3.1 8B, 15T tokens, 30 d, H100": lambda: request(
        "meta-llama/Llama-3.1-8B", 15e12, 30, "H100", sequence=8192, batch=2048
    ),
    "DeepSeek-V3, 14.8T tokens, 54 d, H800": lambda: request(
        "deepseek-ai/DeepSeek-V3", 14.8e12, 54, "H800", sequence=4096, batch=15360, precision="fp8"
    ),
}

if __name__ == "__main__":
    main()
