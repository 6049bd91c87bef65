"""Slowdown of published stacks relative to the stack that a plan without a framework assumes.

    python -m bench.assumed_stack [REFERENCE] [--fit] [--date DATE]

A plan without a framework uses the best layout of the best stack. Its step time is compared with published
pretraining steps: of each model, GPU type, number of GPUs, sequence and precision the fastest one, because
people measure layouts before they train for weeks, with the same GPUs, sequence, batch and year. ln(measured
/ planned) is fitted as a 2^((2024 - year) / h), least absolute errors, sources weighted by the root of their
rows, in 16 bits; whole runs are not used. Published steps in 8 bits are printed for comparison: most are the
vendors' own. With --fit the values are written to data/whole_run.json.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from bench.fitting import arguments
from bench.reference import reference
from bench.step_rows import StepRows, load
from bench.whole_runs import write

from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.framework import assumed_frameworks
from rightsizer_engine.domain.workload import Method, Precision, Workload
from rightsizer_engine.published.rows import case_from_row
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan, Request

LEAD, HALVING = "assumed_stack_ln", "assumed_stack_halving"
YEAR = 2024.0
"""The year that the lead is of."""
HALVINGS = np.geomspace(0.5, 50.0, 93)
SIXTEEN = (Precision.BF16, Precision.FP16)
FEWEST_GPUS = {"VTRAIN": 64}
"""vTrain's single-node rows are sums of measured layers, not steps."""
Group = tuple[str, str, int, int, str, int, int, Precision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The fastest published step of a group: its case, seconds a token."""

    case: Case
    s_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """ln(measured / planned) of a group's fastest step."""

    source: str
    year: float
    ln: float


def main() -> None:
    """Print every source's median and the fit; write it with --fit."""
    parser = arguments(__doc__)
    parser.add_argument("--fit", action="store_true", help="write data/whole_run.json")
    given = parser.parse_args()
    groups = fastest(load(reference(given.reference), notes=True))
    found = compared({g: f for g, f in groups.items() if g[-1] in SIXTEEN})
    shown("16 bits", found)
    shown("8 bits", compared({g: f for g, f in groups.items() if g[-1] is Precision.FP8}))
    lead, halving = fitted(found)
    print(f"16 bits: {lead:+.3f} in {YEAR:g}, halves in {halving:.1f} years; left out {_left_out(found):.3f}")
    if given.fit:
        write(LEAD, lead, given.date)
        write(HALVING, halving, given.date)


def fastest(rows: StepRows) -> dict[Group, Fastest]:
    """The step with the least time per token in each group of published pretraining steps."""
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
    """The key of runs that are compared with each other, and the tokens of a step."""
    shape, work, gpus = case.architecture, case.workload, case.layout.gpus
    gpu, sequence = case.cluster.gpu.name, work.sequence_tokens
    group = (source, shape.name, shape.layers, shape.hidden, gpu, gpus, sequence, work.precision)
    return group, float(sequence * work.global_batch_sequences)


def compared(groups: Mapping[Group, Fastest]) -> Sequence[Compared]:
    """The comparison for each group that has a plan."""
    found = []
    for group, one in groups.items():
        answer = size(_asked(one.case), compared=False)
        if isinstance(answer, Plan):  # V100s have no bf16, for one
            ln = float(np.log(one.s_per_token * answer.option.tokens_per_s))
            found.append(Compared(source=group[0], year=one.case.workload.library_year or YEAR, ln=ln))
    return found


def shown(name: str, found: Sequence[Compared]) -> None:
    """Prints the medians by source."""
    for source in sorted({one.source for one in found}):
        own = [one for one in found if one.source == source]
        years = f"{min(o.year for o in own):.0f} to {max(o.year for o in own):.0f}"
        print(f"{name} {source:8} n {len(own):3}  {years}  {np.median([o.ln for o in own]):+.3f}")


def fitted(found: Sequence[Compared]) -> tuple[float, float]:
    """The fitted slowdown of 2024 and the years in which it halves: least weighted absolute error."""
    ln, year, weight = _columns(found)
    best = (np.inf, 0.0, 0.0)
    for halving in HALVINGS:
        shape = 2.0 ** ((YEAR - year) / halving)
        lead = _weighted_median(ln / shape, weight * shape)
        best = min(best, (float(np.sum(weight * np.abs(ln - lead * shape))), lead, float(halving)))
    return round(best[1], 3), round(best[2], 2)


def _left_out(found: Sequence[Compared]) -> float:
    """The mean of the sources' median errors, each source left out of its fit."""
    medians = []
    for source in sorted({one.source for one in found}):
        lead, halving = fitted([one for one in found if one.source != source])
        ln, year, _ = _columns([one for one in found if one.source == source])
        medians.append(np.median(np.abs(ln - lead * 2.0 ** ((YEAR - year) / halving))))
    return float(np.mean(medians))


def _columns(found: Sequence[Compared]) -> tuple[Array, Array, Array]:
    sources = [one.source for one in found]
    weight = np.asarray([sources.count(source) ** -0.5 for source in sources])
    return np.asarray([o.ln for o in found]), np.asarray([o.year for o in found]), weight


def _weighted_median(values: Array, weight: Array) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, 0.5 * total[-1])])


def _asked(case: Case) -> Request:
    """A request with the model, GPUs, sequence and batch of the run, and nothing else."""
    work, gpus = case.workload, case.layout.gpus
    eight, stacks = work.precision is Precision.FP8, assumed_frameworks(decoder=True, adapters=False)
    return Request(
        architecture=case.architecture,
        workload=Workload(
            tokens=1e12,
            sequence_tokens=work.sequence_tokens,
            global_batch_sequences=work.global_batch_sequences,
            precision=Precision.FP8 if eight else Precision.BF16,
            library_year=work.library_year,
        ),
        framework=stacks[0],
        framework_assumed=True,
        stacks=stacks,
        clusters=(replace(case.cluster, max_gpus=max(case.cluster.max_gpus, gpus)),),
        gpu_counts=(gpus,),
    )


if __name__ == "__main__":
    main()
