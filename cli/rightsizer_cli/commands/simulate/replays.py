"""`simulate`: a trace replayed three ways, summed up for people and programs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.table import Table

from rightsizer.fleet.simulation import ReplayOutcome, ReplayRules, TraceJob, oracle, replay, static
from rightsizer.units import format_count, format_duration
from rightsizer.values import immutable
from rightsizer_cli.commands.simulate.attributes import UTILISATIONS, Draw, default_cluster_gpus, drawn
from rightsizer_cli.commands.simulate.traces import Trace
from rightsizer_cli.console import show
from rightsizer_cli.usage_errors import OptionError

__all__ = ["Replayed", "print_replayed", "replayed", "report"]

WAYS = ("static", "rightsizer", "oracle")


@immutable
class Replayed:
    """A trace with what was drawn for it, the cluster, and what became of it each way."""

    trace: Trace
    draw: Draw
    rules: ReplayRules
    jobs: tuple[TraceJob, ...]
    cluster_gpus: int
    outcomes: Mapping[str, ReplayOutcome]


def replayed(trace: Trace, draw: Draw, rules: ReplayRules, cluster_gpus: int | None) -> Replayed:
    """Replay it under static requests, the policy and the oracle."""
    gpus = default_cluster_gpus(trace.rows) if cluster_gpus is None else cluster_gpus
    largest = max(row.gpus for row in trace.rows)
    if gpus < largest:
        remedy = f"is less than the {largest} GPUs that the largest job asks for"
        raise OptionError("--cluster-gpus", value=gpus, remedy=remedy)
    jobs = drawn(trace.rows, draw)
    outcomes = {
        "static": static(jobs, gpus=gpus),
        "rightsizer": replay(jobs, gpus=gpus, rules=rules),
        "oracle": oracle(jobs, gpus=gpus, rules=rules),
    }
    return Replayed(trace=trace, draw=draw, rules=rules, jobs=jobs, cluster_gpus=gpus, outcomes=outcomes)


def report(found: Replayed) -> dict[str, Any]:
    """The JSON document."""
    ways = {name: _summary(found.jobs, found.outcomes[name]) for name in WAYS}
    ours, asked, best = (ways[name]["gpuHours"] for name in ("rightsizer", "static", "oracle"))
    return {
        "trace": found.trace.name,
        "jobs": len(found.jobs),
        "jobsWithDeadline": sum(job.deadline_s is not None for job in found.jobs),
        "clusterGPUs": found.cluster_gpus,
        "seed": found.draw.seed,
        "assumptions": assumptions(found),
        **ways,
        "savedFraction": _rounded(1.0 - ours / asked),
        "aboveOracleFraction": _rounded(ours / best - 1.0),
        "virtualClusters": _virtual_clusters(found),
    }


def assumptions(found: Replayed) -> dict[str, str]:
    """How everything that the trace does not say was drawn, and what was modelled."""
    draw, rows = found.draw, found.trace.rows
    with_deadline = sum(row.deadline_s is not None for row in rows)
    with_use = sum(row.utilisation is not None for row in rows)
    low, high = draw.deadlines or (0.0, 0.0)
    deadlines = f"submitted + {low:g} to {high:g} x duration, even" if draw.deadlines else "none"
    use = draw.utilisation
    use_words = UTILISATIONS[use] if isinstance(use, str) else f"{use:.0%} for every job"
    limits = found.rules.limits
    return {
        "deadlines": f"{deadlines}; {with_deadline} of {len(rows)} jobs have the trace's own",
        "utilisation": f"{use_words}; {with_use} of {len(rows)} jobs have the trace's own",
        "scaling": (
            "on n GPUs a job that asked for g takes (1 - s) g/n + s of its duration; s = "
            f"{draw.fixed_share:g} x (1 - utilisation) is what more GPUs do not shorten"
        ),
        "knowledge": (
            f"before a job runs: its work, its rate within {draw.rate_sigma:.0%}, even scaling; "
            f"once it runs: its rate within {draw.measured_sigma:.0%}, "
            f"its s within {draw.scaling_sigma:g} (logit)"
        ),
        "policy": (
            f"a restart holds the GPUs for {format_duration(limits.restart_s)}; at most one resize in "
            f"{format_duration(limits.cool_down_s)}; shrinks {limits.pressure}; grows to "
            f"{found.rules.most_growth:g} x what was asked for"
        ),
        "static": "what was asked for, first come, first served, nobody overtaken",
        "oracle": "knows every job's true curve; no queue, no restarts, free changes of size: a bound",
    }


def _summary(jobs: Sequence[TraceJob], some: ReplayOutcome) -> dict[str, Any]:
    waits = np.asarray(some.started_s) - np.asarray([job.submitted_s for job in jobs])
    late = [
        end_s - job.deadline_s
        for job, end_s in zip(jobs, some.finished_s, strict=True)
        if job.deadline_s is not None and end_s > job.deadline_s
    ]
    return {
        "gpuHours": _rounded(sum(some.gpu_hours)),
        "missedDeadlines": some.missed,
        "meanLatenessSeconds": _rounded(float(np.mean(late))) if late else 0.0,
        "queueMeanSeconds": _rounded(float(waits.mean())),
        "queueP95Seconds": _rounded(float(np.quantile(waits, 0.95))),
        "resizes": some.resizes,
        "restartGPUHours": _rounded(some.lost_gpu_hours),
        "decisions": {str(name): count for name, count in sorted(some.decisions.items())},
    }


def _virtual_clusters(found: Replayed) -> dict[str, Any]:
    """GPU-hours and missed deadlines by virtual cluster, the largest first."""
    names = np.asarray([row.virtual_cluster for row in found.trace.rows])
    parts: dict[str, Any] = {}
    for name in sorted(set(names.tolist())):
        index = np.flatnonzero(names == name)
        part: dict[str, Any] = {"jobs": int(index.size)}
        for way in WAYS:
            some = found.outcomes[way]
            missed = sum(
                found.jobs[i].deadline_s is not None
                and some.finished_s[i] > (found.jobs[i].deadline_s or 0.0) + 1e-6
                for i in index
            )
            part[way] = {
                "gpuHours": _rounded(sum(some.gpu_hours[i] for i in index)),
                "missedDeadlines": missed,
            }
        parts[name] = part
    return dict(sorted(parts.items(), key=lambda item: -item[1]["static"]["gpuHours"]))


def _rounded(value: float) -> float:
    """Six significant digits: more would differ between machines."""
    return float(f"{value:.6g}")


def print_replayed(found: Replayed) -> None:
    """The verdict, the table, what was assumed."""
    document = report(found)
    ours, asked = document["rightsizer"], document["static"]
    saved, above = document["savedFraction"], document["aboveOracleFraction"]
    fewer = f"{saved:.1%} fewer" if saved >= 0 else f"{-saved:.1%} more"
    verdict = (
        f"{format_count(ours['gpuHours'])} GPU-hours, {fewer} than static requests; "
        f"{ours['missedDeadlines']:,} deadlines missed against {asked['missedDeadlines']:,}; "
        f"{above:.1%} above the oracle"
    )
    about = (
        f"{found.trace.name}: {len(found.jobs):,} jobs, {document['jobsWithDeadline']:,} with a deadline, "
        f"on {found.cluster_gpus:,} GPUs, seed {found.draw.seed}"
    )
    lines = "\n".join(f"- {name}: {words}" for name, words in document["assumptions"].items())
    show(verdict, about, _table(document), f"Assumed\n{lines}")


def _table(document: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("GPU-hours", "missed", "late by", "queue mean", "queue 95 %", "resizes", "restarts"):
        table.add_column(name, justify="right")
    for way in WAYS:
        row = document[way]
        table.add_row(
            way,
            format_count(row["gpuHours"]),
            f"{row['missedDeadlines']:,}",
            format_duration(row["meanLatenessSeconds"]),
            format_duration(row["queueMeanSeconds"]),
            format_duration(row["queueP95Seconds"]),
            f"{row['resizes']:,}",
            f"{row['restartGPUHours']:,.0f} GPU-h",
        )
    return table


def with_options(rules: ReplayRules, **changes: Any) -> ReplayRules:
    """The rules with some of their limits changed."""
    return replace(rules, limits=replace(rules.limits, **changes))
