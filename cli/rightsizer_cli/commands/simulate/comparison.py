"""`simulate`: one trace under static requests, the policy and the oracle, compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.table import Table

from rightsizer.fleet.simulation import ReplayOutcome, ReplayRules, TraceJob, oracle, replay, static
from rightsizer.units import format_count, format_duration
from rightsizer.values import immutable
from rightsizer_cli.commands.simulate.attributes import UTILISATIONS, Draw, default_cluster_gpus, draw_jobs
from rightsizer_cli.commands.simulate.traces import Trace
from rightsizer_cli.console import show
from rightsizer_cli.usage_errors import OptionError

__all__ = ["Comparison", "compare", "print_comparison", "report"]

POLICIES = ("static", "rightsizer", "oracle")


@immutable
class Comparison:
    """A trace, the values drawn for it, the cluster, and the outcome under each policy."""

    trace: Trace
    draw: Draw
    rules: ReplayRules
    jobs: tuple[TraceJob, ...]
    cluster_gpus: int
    outcomes: Mapping[str, ReplayOutcome]


def compare(trace: Trace, draw: Draw, rules: ReplayRules, cluster_gpus: int | None) -> Comparison:
    """Replay the trace under static requests, the policy and the oracle."""
    gpus = default_cluster_gpus(trace.rows) if cluster_gpus is None else cluster_gpus
    largest = max(row.gpus for row in trace.rows)
    if gpus < largest:
        remedy = f"is less than the largest job's {largest} GPUs"
        raise OptionError("--cluster-gpus", value=gpus, remedy=remedy)
    jobs = draw_jobs(trace.rows, draw)
    outcomes = {
        "static": static(jobs, gpus=gpus),
        "rightsizer": replay(jobs, gpus=gpus, rules=rules),
        "oracle": oracle(jobs, gpus=gpus, rules=rules),
    }
    return Comparison(trace=trace, draw=draw, rules=rules, jobs=jobs, cluster_gpus=gpus, outcomes=outcomes)


def report(comparison: Comparison) -> dict[str, Any]:
    """The JSON document."""
    policies = {name: _summary(comparison.jobs, comparison.outcomes[name]) for name in POLICIES}
    ours, requested, best = (policies[name]["gpuHours"] for name in ("rightsizer", "static", "oracle"))
    return {
        "trace": comparison.trace.name,
        "jobs": len(comparison.jobs),
        "jobsWithDeadline": sum(job.deadline_s is not None for job in comparison.jobs),
        "clusterGPUs": comparison.cluster_gpus,
        "seed": comparison.draw.seed,
        "assumptions": assumptions(comparison),
        **policies,
        "savedFraction": _rounded(1.0 - ours / requested),
        "aboveOracleFraction": _rounded(ours / best - 1.0),
        "virtualClusters": _virtual_clusters(comparison),
    }


def assumptions(comparison: Comparison) -> dict[str, str]:
    """The distributions of values that the trace lacks, and the model's assumptions."""
    draw, rows = comparison.draw, comparison.trace.rows
    with_deadline = sum(row.deadline_s is not None for row in rows)
    with_use = sum(row.utilisation is not None for row in rows)
    low, high = draw.deadlines or (0.0, 0.0)
    deadlines = f"submitted + {low:g} to {high:g} x duration, uniform" if draw.deadlines else "none"
    use = draw.utilisation
    use_text = UTILISATIONS[use] if isinstance(use, str) else f"{use:.0%} for every job"
    limits = comparison.rules.limits
    return {
        "deadlines": f"{deadlines}; {with_deadline} of {len(rows)} jobs have the trace's own",
        "utilisation": f"{use_text}; {with_use} of {len(rows)} jobs have the trace's own",
        "scaling": (
            "on n GPUs a job that requested g takes (1 - s) g/n + s of its duration; s = "
            f"{draw.fixed_share:g} x (1 - utilisation) is the part that more GPUs do not shorten"
        ),
        "knowledge": (
            f"before a job runs: its work, its rate within {draw.rate_sigma:.0%}, linear scaling; "
            f"while it runs: its rate within {draw.measured_sigma:.0%}, "
            f"its s within {draw.scaling_sigma:g} (logit)"
        ),
        "policy": (
            f"a restart holds the GPUs for {format_duration(limits.restart_s)}; at most one resize in "
            f"{format_duration(limits.cool_down_s)}; shrinks {limits.pressure}; grows to "
            f"{comparison.rules.most_growth:g} x the request"
        ),
        "static": "the requested GPUs; first come, first served, no backfill",
        "oracle": "knows every job's true scaling; no queue, no restarts, free resizes: a lower bound",
    }


def _summary(jobs: Sequence[TraceJob], outcome: ReplayOutcome) -> dict[str, Any]:
    waits = np.asarray(outcome.started_s) - np.asarray([job.submitted_s for job in jobs])
    late = [
        end_s - job.deadline_s
        for job, end_s in zip(jobs, outcome.finished_s, strict=True)
        if job.deadline_s is not None and end_s > job.deadline_s
    ]
    return {
        "gpuHours": _rounded(sum(outcome.gpu_hours)),
        "missedDeadlines": outcome.missed,
        "meanLatenessSeconds": _rounded(float(np.mean(late))) if late else 0.0,
        "queueMeanSeconds": _rounded(float(waits.mean())),
        "queueP95Seconds": _rounded(float(np.quantile(waits, 0.95))),
        "resizes": outcome.resizes,
        "restartGPUHours": _rounded(outcome.lost_gpu_hours),
        "decisions": {str(name): count for name, count in sorted(outcome.decisions.items())},
    }


def _virtual_clusters(comparison: Comparison) -> dict[str, Any]:
    """GPU-hours and missed deadlines by virtual cluster, the largest first."""
    names = np.asarray([row.virtual_cluster for row in comparison.trace.rows])
    parts: dict[str, Any] = {}
    for name in sorted(set(names.tolist())):
        index = np.flatnonzero(names == name)
        part: dict[str, Any] = {"jobs": int(index.size)}
        for policy in POLICIES:
            outcome = comparison.outcomes[policy]
            missed = sum(
                comparison.jobs[i].deadline_s is not None
                and outcome.finished_s[i] > (comparison.jobs[i].deadline_s or 0.0) + 1e-6
                for i in index
            )
            part[policy] = {
                "gpuHours": _rounded(sum(outcome.gpu_hours[i] for i in index)),
                "missedDeadlines": missed,
            }
        parts[name] = part
    return dict(sorted(parts.items(), key=lambda item: -item[1]["static"]["gpuHours"]))


def _rounded(value: float) -> float:
    """Six significant digits: more would differ between machines."""
    return float(f"{value:.6g}")


def print_comparison(comparison: Comparison) -> None:
    """Print the verdict, the table and the assumptions."""
    document = report(comparison)
    ours, requested = document["rightsizer"], document["static"]
    saved, above = document["savedFraction"], document["aboveOracleFraction"]
    fewer = f"{saved:.1%} fewer" if saved >= 0 else f"{-saved:.1%} more"
    verdict = (
        f"{format_count(ours['gpuHours'])} GPU-hours, {fewer} than static requests; "
        f"{ours['missedDeadlines']:,} deadlines missed against {requested['missedDeadlines']:,}; "
        f"{above:.1%} above the oracle"
    )
    about = (
        f"{document['trace']}: {document['jobs']:,} jobs, {document['jobsWithDeadline']:,} with a deadline, "
        f"on {document['clusterGPUs']:,} GPUs, seed {document['seed']}"
    )
    lines = "\n".join(f"- {name}: {text}" for name, text in document["assumptions"].items())
    show(verdict, about, _table(document), f"Assumptions\n{lines}")


def _table(document: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("GPU-hours", "missed", "late by", "queue mean", "queue 95 %", "resizes", "restarts"):
        table.add_column(name, justify="right")
    for policy in POLICIES:
        row = document[policy]
        table.add_row(
            policy,
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
    """The rules with outcome of their limits changed."""
    return replace(rules, limits=replace(rules.limits, **changes))
