"""How much slower published stacks are than the one that is assumed where nobody names a framework.

    python -m bench.assumed_stack [REFERENCE] [--fit] [--date DATE]

A plan without a framework is answered with the best layout of an assumed stack. Published pretraining steps
say what people's stacks took for the same: of every model, GPU type, number of GPUs, sequence and precision
the fastest published step (whoever trains for weeks measures layouts first), against the plan for the same
GPUs, sequence and batch. The value is the mean of the sources' medians of ln(measured / planned) in 16 bits;
no whole run is looked at. Published steps in 8 bits are printed beside it: they are vendors' own for the
larger part. With --fit the value is written to data/whole_run.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from bench.fitting import arguments, reference
from bench.step_rows import StepRows, load
from bench.whole_runs import write

from rightsizer.domain.cases import Case
from rightsizer.domain.framework import assumed_framework
from rightsizer.domain.workload import Method, Precision, Workload
from rightsizer.published.rows import case_from_row
from rightsizer.search.plan import plan
from rightsizer.search.types import Plan, Request

ENTRY = "assumed_stack_ln"
SIXTEEN = (Precision.BF16, Precision.FP16)
FEWEST_GPUS = {"VTRAIN": 64}
"""vTrain's single-node rows are sums of measured layers, not steps."""
Group = tuple[str, str, int, int, str, int, int, Precision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The fastest published step of a group: its case, seconds a token."""

    case: Case
    s_per_token: float


def main() -> None:
    """Print every source's median and their mean; write it with --fit."""
    parser = arguments(__doc__)
    parser.add_argument("--fit", action="store_true", help="write data/whole_run.json")
    given = parser.parse_args()
    groups = fastest(load(reference(given.reference), notes=True))
    value = shown("16 bits", {g: f for g, f in groups.items() if g[-1] in SIXTEEN})
    shown("8 bits", {g: f for g, f in groups.items() if g[-1] is Precision.FP8})
    if given.fit:
        write(ENTRY, value, given.date)


def fastest(rows: StepRows) -> dict[Group, Fastest]:
    """Of each group of published pretraining steps the one with the least time a token."""
    found: dict[Group, Fastest] = {}
    for index in np.flatnonzero(rows.judged):
        case, source = case_from_row(rows.rows[index]), str(rows.source[index])
        if case.workload.method is not Method.PRETRAIN or case.layout.gpus < FEWEST_GPUS.get(source, 1):
            continue
        group, tokens = _group(source, case)
        one = Fastest(case=case, s_per_token=float(rows.measured_s[index]) / tokens)
        if group not in found or one.s_per_token < found[group].s_per_token:
            found[group] = one
    return found


def _group(source: str, case: Case) -> tuple[Group, float]:
    """What runs have in common that are the same question, and the tokens of a step."""
    shape, work, gpus = case.architecture, case.workload, case.layout.gpus
    gpu, sequence = case.cluster.gpu.name, work.sequence_tokens
    group = (source, shape.name, shape.layers, shape.hidden, gpu, gpus, sequence, work.precision)
    return group, float(sequence * work.global_batch_sequences)


def shown(name: str, groups: Mapping[Group, Fastest]) -> float:
    """Prints the medians by source; the mean of them."""
    by_source: dict[str, list[float]] = {}
    for group, one in groups.items():
        answer = plan(_asked(one.case), compared=False)
        if isinstance(answer, Plan):  # V100s have no bf16, for one
            ln = float(np.log(one.s_per_token * answer.option.tokens_per_s))
            by_source.setdefault(group[0], []).append(ln)
    medians = {source: float(np.median(found)) for source, found in by_source.items()}
    for source, median in sorted(medians.items(), key=lambda item: item[1]):
        print(f"{name} {source:8} n {len(by_source[source]):3}  median ln(measured / planned) {median:+.3f}")
    spread, value = float(np.std(list(medians.values()))), float(np.mean(list(medians.values())))
    print(f"{name}: mean {value:+.3f} of {len(medians)} sources, which scatter by {spread:.3f}")
    return round(value, 3)


def _asked(case: Case) -> Request:
    """The same model, GPUs, sequence and batch, where nobody says more."""
    work, gpus = case.workload, case.layout.gpus
    eight = work.precision is Precision.FP8
    return Request(
        architecture=case.architecture,
        workload=Workload(
            tokens=1e12,
            sequence_tokens=work.sequence_tokens,
            global_batch_sequences=work.global_batch_sequences,
            precision=Precision.FP8 if eight else Precision.BF16,
        ),
        framework=assumed_framework(decoder=True, adapters=False),
        framework_assumed=True,
        clusters=(replace(case.cluster, max_gpus=max(case.cluster.max_gpus, gpus)),),
        gpu_counts=(gpus,),
    )


if __name__ == "__main__":
    main()
