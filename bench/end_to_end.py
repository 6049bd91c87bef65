"""GPU-hours of whole published runs against predictions from the inputs that a user would state.

    python -m bench.end_to_end [REFERENCE] [--json FILE]

Model, tokens, GPU type and number of GPUs come from end_to_end_runs.csv; the layout is the engine's own
choice on those GPUs, goodput included. Four sets of inputs: `asked` knows only the year (the model's
own sequence, batch and precision where the catalog has them, else usual ones; the best stack); `blind` knows
the published sequence, batch and precision, the framework unknown; `told` knows the framework too; `laid_out`
also what was published of the layout (end_to_end_inputs.csv, each with its source; `checked` says what of it
was compared with the source's text, the rest, and the years, are from memory). Runs whose number of GPUs was
not published are planned on the number that the engine chooses, and reported apart.

A published figure includes all downtime of the run. The engine uses the best layout that it finds; the run
may have used a worse one. Both make predictions low. `scaled` is the error after division by one factor, the
median of all other sources: the best that one constant could reach.
"""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.fitting import arguments, read
from bench.reference import reference
from bench.results import RESULTS, write_json
from bench.whole_runs import FITTED, GOAL, Result, summary, whole_run, write

from rightsizer_api.spec.defaults import workload_of
from rightsizer_api.spec.workload import WorkloadSpec
from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.recipes import recipe
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.framework import Framework, assumed_frameworks, framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import AttentionKernel, Method, Precision, Workload
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.estimate import goodput
from rightsizer_engine.search.reasons import layout_text
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Objective, Option, Plan, Request

KINDS = ("whole_run", "pretrain_phase")
ERA = 2023.0
"""Before this year the usual stack was Megatron-LM with unfused attention."""
MOST_GPUS = 4096
TIGHT = 1.3
"""Room of a published layout too near the limit: it ran. Llama 3 shards gradients too, Megatron does not."""
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Inputs of a run besides model, tokens and GPUs."""

    sequence_tokens: int
    batch_tokens: float
    precision: Precision
    framework: Framework
    year: float = 0.0
    compile: bool | None = None
    attention: AttentionKernel = AttentionKernel.AUTO
    network: str = ""
    assumed: tuple[Framework, ...] = ()
    pinned: Mapping[str, int] = field(default_factory=dict)


class SkippedError(Exception):
    """A run that cannot be predicted; the message has the reason."""


def main() -> None:
    """Compare every set of inputs, print the tables, write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--fit", action="store_true", help="write data/whole_run.json")
    parser.add_argument("--json", type=Path, default=RESULTS / "end_to_end.json", metavar="FILE")
    given = parser.parse_args()
    rows = read(reference(given.reference), "end_to_end_runs.csv")
    with Path(__file__).with_name("end_to_end_inputs.csv").open(encoding="utf-8", newline="") as file:
        inputs = {r["id"]: r for r in csv.DictReader(file)}
    document: dict[str, Any] = {"goal": GOAL, "tellings": {}}
    for name, telling in TELLINGS.items():
        results, skipped = judge(rows, inputs, telling)
        document["tellings"][name] = told = summary(results)
        sigma, left_out = whole_run(results)
        told |= {"runs": [asdict(r) for r in results], "skipped": skipped, "left_out": left_out}
        show(name, told, results)
        print(f"{name}: scatter of whole runs {sigma}; fitted without the run's source: {left_out}")
        if given.fit and name in FITTED:
            write(FITTED[name], sigma, given.date)
    write_json(given.json, document)
    show_skipped(document["tellings"]["laid_out"]["skipped"])


def judge(
    rows: Iterable[Row], inputs: Mapping[str, Row], telling: Callable[[Row, Row, Architecture], Telling]
) -> tuple[list[Result], dict[str, str]]:
    """The results of all predictable runs, and the reasons why the others are not."""
    results, skipped = [], {}
    for row in rows:
        try:
            more = askable(row, inputs)
            shape = architecture(row, more)
            results.append(result(row, more, shape, telling(row, more, shape)))
        except (SkippedError, RightsizerError) as why:
            skipped[row["id"]] = f"{row['model'][:40]}: {why}"
    return results, skipped


def askable(row: Row, inputs: Mapping[str, Row]) -> Row:
    """The further inputs of a run, if it is one whole pretraining run with known tokens and GPU-hours."""
    if row["run_kind"] not in KINDS:
        raise SkippedError(f"kind of run: {row['run_kind']}")
    for column in ("tokens_b", "gpu_hours", "gpu_type"):
        if not row[column]:
            raise SkippedError(f"{column} not published")
    more = inputs.get(row["id"], {})
    if more.get("exclude"):
        raise SkippedError(more["exclude"])
    if not more.get("model") and not more.get("dimensions"):
        raise SkippedError("dimensions not published, or not of a model that the catalog holds")
    return more


def architecture(row: Row, more: Row) -> Architecture:
    """The catalog's model, or the published dimensions."""
    if more["model"]:
        return lookup.model(more["model"])
    size = {name: int(value) for name, value in (pair.split("=") for pair in more["dimensions"].split())}
    flags = {name: bool(size.pop(name)) for name in ("gated_mlp", "tied_embeddings")}
    head_dim = size["hidden"] // size["heads"]
    return Architecture(name=row["model"], head_dim=head_dim, **flags, **size)


def asked(row: Row, more: Row, shape: Architecture) -> Telling:
    """Model, tokens, GPU type and year; `rightsizer plan` fills in the rest."""
    stacks = assumed_frameworks(decoder=True, adapters=False)
    spec = WorkloadSpec.model_construct(method=Method.PRETRAIN, tokens=f"{row['tokens_b']}B")
    own = recipe(shape.name) if more["model"] else None
    work = workload_of(spec, shape, stacks[0], recipe=own, gpus=[lookup.gpu(row["gpu_type"])])
    return Telling(
        sequence_tokens=work.sequence_tokens,
        batch_tokens=float(work.global_batch_sequences * work.sequence_tokens),
        precision=work.precision,
        framework=stacks[0],
        year=float(more["year"] or 0.0),
        assumed=stacks,
    )


def told(_row: Row, more: Row, _shape: Architecture) -> Telling:
    """All published inputs; the usual stack of the year if the framework is not published."""
    year = float(more["year"] or 0.0)
    return Telling(
        sequence_tokens=int(more["sequence_tokens"]),
        batch_tokens=float(more["batch_tokens"]),
        precision=Precision(more["precision"]),
        framework=usual(year) if more["framework"].startswith("unknown") else framework(more["framework"]),
        year=year,
        compile=True if more["compile"] else None,
        attention=AttentionKernel(more["attention"] or "auto"),
        network=more["network"],
    )


def usual(year: float) -> Framework:
    """The stack of most large runs of a year."""
    return framework("megatron-lm-2022" if 0 < year < ERA else "unknown-parallel")


def blind(row: Row, more: Row, shape: Architecture) -> Telling:
    """All published inputs but the framework."""
    known = told(row, more, shape)
    return replace(known, framework=usual(known.year), compile=None)


def laid_out(row: Row, more: Row, shape: Architecture) -> Telling:
    """All published inputs, with the layout."""
    pins = {name: int(value) for name, value in (pair.split("=") for pair in more["layout"].split())}
    return replace(told(row, more, shape), pinned=pins)


TELLINGS = {"laid_out": laid_out, "told": told, "blind": blind, "asked": asked}


def result(row: Row, more: Row, shape: Architecture, telling: Telling) -> Result:
    """The prediction of one run; of its steps with stragglers alone, if the published hours are those."""
    gpus = int(row["gpus"]) if row["gpus"] else None
    option = planned(row, shape, telling, gpus)
    steps = more.get("hours_of") == "steps"
    counted = option.gpus * (option.stepping if steps else 1.0) / 3600
    measured_h, predicted_h = float(row["gpu_hours"]), counted * option.finish_s
    low_h, high_h = (counted * s for s in (option.finish_lo_s, option.finish_hi_s))
    return Result(
        id=row["id"],
        model=row["model"],
        gpu=option.cluster.gpu.name,
        gpus_known=gpus is not None,
        gpus=option.gpus,
        measured_gpu_h=measured_h,
        predicted_gpu_h=round(predicted_h, 1),
        ideal_gpu_h=round(option.gpus * option.finish_s / 3600 * option.goodput * option.mfu, 1),
        share=0.0 if steps else round(_share(option), 4),
        step_sigma=round(option.sigma, 4),
        error=round(predicted_h / measured_h - 1, 4),
        inside=low_h <= measured_h <= high_h,
        mfu=round(option.mfu, 4),
        goodput=round(option.goodput, 4),
        layout=layout_text(option.layout),
    )


def _share(option: Option) -> float:
    """The share of a large run's losses that a run of this size has, 0 to 1."""
    lost = option.lost_by_cause.get("unplanned", 0.0) + option.stepping - option.goodput
    planned_s = np.asarray(option.finish_s * (1.0 - lost))
    return float(goodput.whole_run(np.asarray(option.gpus), planned_s, np.asarray(1.0)).weight)


def planned(row: Row, shape: Architecture, telling: Telling, gpus: int | None) -> Option:
    """The engine's own layout on the run's GPUs; a published layout fits, since it ran."""
    cluster = _cluster(row["gpu_type"], telling.network, gpus)
    answer = _plan(row, shape, telling, gpus, cluster)
    if isinstance(answer, NoPlan) and telling.pinned:
        roomy = replace(cluster.gpu, memory_bytes=cluster.gpu.memory_bytes * TIGHT)
        answer = _plan(row, shape, telling, gpus, replace(cluster, gpu=roomy))
    if isinstance(answer, NoPlan):
        raise SkippedError(f"no plan: {answer.reason}")
    return answer.option


def _cluster(gpu_type: str, network: str, gpus: int | None) -> Cluster:
    """Nodes of that GPU; `network` is GB/s of a GPU and the fabric's name, where it was published."""
    most = gpus or MOST_GPUS
    if not network:
        return lookup.cluster(gpu_type, max_gpus=most)
    rate, fabric = network.split(maxsplit=1)
    cluster = lookup.cluster(gpu_type, inter_bytes_per_s=float(rate) * 1e9, max_gpus=most)
    return replace(cluster, inter_link=fabric)


def _plan(
    row: Row, shape: Architecture, telling: Telling, gpus: int | None, cluster: Cluster
) -> Plan | NoPlan:
    workload = Workload(
        tokens=float(row["tokens_b"]) * 1e9,
        sequence_tokens=telling.sequence_tokens,
        global_batch_sequences=max(1, round(telling.batch_tokens / telling.sequence_tokens)),
        precision=telling.precision,
        compile=telling.compile,
        attention=telling.attention,
        library_year=telling.year,
    )
    return size(
        Request(
            architecture=shape,
            workload=workload,
            framework=telling.framework,
            framework_assumed=bool(telling.assumed),
            stacks=telling.assumed,
            clusters=(cluster,),
            gpu_counts=() if gpus is None else (gpus,),
            objective=Objective.COST if gpus is None else Objective.GPUS,
            pinned=telling.pinned,
        )
    )


def show(name: str, told: Mapping[str, Any], results: Sequence[Result]) -> None:
    """The table of one set of inputs."""
    print(f"\n== {name}")
    heads = f"{'run':8} {'model':34} {'GPU':18} {'GPUs':>6} {'measured h':>12} {'predicted h':>12}"
    print(f"{heads} {'error':>7}  MFU")
    for r in sorted(results, key=lambda r: (not r.gpus_known, r.id)):
        count = f"{r.gpus}" if r.gpus_known else f"({r.gpus})"
        print(
            f"{r.id:8} {r.model[:34]:34} {r.gpu:18} {count:>6} {r.measured_gpu_h:12,.0f}"
            f" {r.predicted_gpu_h:12,.0f} {r.error:+7.1%}  {r.mfu:.0%}  {r.layout}"
        )
    for group in ("gpus_known", "gpus_unknown"):
        found = told[group]
        if found["n"]:
            figures = ", ".join(f"{k} {v:.1%}" for k, v in found.items() if k != "n")
            print(f"{name} {group}: n {found['n']}, |error| {figures}")


def show_skipped(skipped: Mapping[str, str]) -> None:
    """Why the other rows were not judged, counted."""
    reasons: dict[str, list[str]] = {}
    for run, why in skipped.items():
        reasons.setdefault(why.split(": ", 1)[1], []).append(run)
    print(f"\n{len(skipped)} rows not judged:")
    for why, runs in sorted(reasons.items(), key=lambda item: -len(item[1])):
        names = ", ".join(runs[:6]) + (" ..." if len(runs) > 6 else "")
        print(f"  {len(runs):4}  {why}: {names}")


if __name__ == "__main__":
    main()
