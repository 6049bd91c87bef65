"""The output of `simulate`: a trace under several policies, compared with static requests and a bound."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.requests.replays import NULLS, OURS, STATIC, ReplayCase, ReplayComparison
from rightsizer_engine.fleet.trace_jobs import ReplayOutcome, TraceJob
from rightsizer_engine.units import format_count, format_duration

_SAME = 1e-3
"""Fewer GPU-hours by less than this share are not called better."""


def replay_document(comparison: ReplayComparison) -> dict[str, Any]:
    """The JSON document."""
    cases = [_case(case) for case in comparison.cases]
    changes = [case["policies"][OURS]["gpuHoursChange"] for case in cases]
    avoided = [_avoided(case["policies"]) for case in cases]
    return {
        "trace": comparison.trace.name,
        "jobs": len(comparison.trace.rows),
        "jobsWithDeadline": sum(job.deadline_s is not None for job in comparison.cases[0].jobs),
        "clusterGPUs": comparison.cluster_gpus,
        "seed": comparison.cases[0].draw.seed,
        "policy": OURS,
        "gpuHoursChange": [min(changes), max(changes)],
        "missedDeadlinesAvoided": [min(avoided), max(avoided)],
        "worseOnBoth": [list(pair) for pair in _worse(cases)],
        "notBetter": [list(pair) for pair in _not_better(cases)],
        "assumptions": _assumptions(comparison),
        "cases": cases,
    }


def _case(case: ReplayCase) -> dict[str, Any]:
    policies = {name: _summary(case.jobs, outcome) for name, outcome in case.outcomes.items()}
    requested = policies[STATIC]["gpuHours"]
    for row in policies.values():
        row["gpuHoursChange"] = _rounded(row["gpuHours"] / requested - 1.0)
    return {"assumption": case.name, "policies": policies}


def _avoided(policies: Mapping[str, Any]) -> int:
    return int(policies[STATIC]["missedDeadlines"] - policies[OURS]["missedDeadlines"])


def _pairs(cases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, float, int]]:
    """Our GPU-hours (relative) and missed deadlines minus those of each null policy, case by case."""
    for case in cases:
        ours = case["policies"][OURS]
        for name in NULLS:
            other = case["policies"][name]
            hours = ours["gpuHours"] / other["gpuHours"] - 1.0
            yield case["assumption"], name, hours, ours["missedDeadlines"] - other["missedDeadlines"]


def _worse(cases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Cases and null policies with fewer GPU-hours and fewer missed deadlines than ours."""
    return [(case, name) for case, name, hours, missed in _pairs(cases) if hours > 0 and missed > 0]


def _not_better(cases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Cases and null policies that ours beats in neither GPU-hours nor missed deadlines."""
    return [(case, name) for case, name, hours, missed in _pairs(cases) if hours >= -_SAME and missed >= 0]


def _assumptions(comparison: ReplayComparison) -> dict[str, str]:
    """The distributions of values that the trace lacks, and the model's assumptions."""
    draw, rows, rules = comparison.cases[0].draw, comparison.trace.rows, comparison.rules
    with_deadline = sum(row.deadline_s is not None for row in rows)
    limits = rules.limits
    return {
        "deadlines": (
            "submitted + lambda x duration, lambda uniform in the range stated; "
            f"{with_deadline} of {len(rows)} jobs have the trace's own"
        ),
        "scaling": (
            "a job that asked for g GPUs runs on n at (n / g)^e times its rate; e of published runs at one "
            "batch size (published: a source at random; poor: the source that scales worst), or 1 (even)"
        ),
        "knowledge": (
            f"before a job runs: its work, its rate within {draw.rate_sigma:.0%}; while it runs: its rate "
            f"within {draw.measured_sigma:.0%}; e: {rules.believed_exponent:g} +- {rules.exponent_sigma:g} "
            "until the job was measured at two sizes"
        ),
        "policy": (
            f"a restart holds the GPUs for {format_duration(limits.restart_s)}; at most one resize in "
            f"{format_duration(limits.cool_down_s)}; a job has at most {rules.most_growth:g} x the request"
        ),
        "staged": "opens where the resize policy would go if the predicted rate were measured; then resized",
        "queue": "first come, first served, no backfill, for all policies",
        "bound": (
            "each job alone, its scaling known, free resizes: no policy misses fewer deadlines, and none "
            "that misses as few uses fewer GPU-hours"
        ),
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
        "resizes": outcome.resizes,
        "restartGPUHours": _rounded(outcome.lost_gpu_hours),
        "decisions": {str(name): count for name, count in sorted(outcome.decisions.items())},
    }


def _rounded(value: float) -> float:
    """Six significant digits: more would differ between machines."""
    return float(f"{value:.6g}")


def _headline(document: Mapping[str, Any]) -> str:
    """Our policy against static requests, over all assumptions."""
    (low, high), (least, most) = document["gpuHoursChange"], document["missedDeadlinesAvoided"]
    cases = document["cases"]
    missed = [case["policies"][STATIC]["missedDeadlines"] for case in cases]
    over = f"over {len(cases)} assumptions" if len(cases) > 1 else f"with {cases[0]['assumption']}"
    return (
        f"{OURS}, against static requests {over}: {low:+.1%} to {high:+.1%} GPU-hours; "
        f"{least:,} to {most:,} fewer missed deadlines (static misses {min(missed):,} to {max(missed):,})"
    )


def print_comparison(comparison: ReplayComparison, *, as_json: bool) -> None:
    """Print the range, a table for each assumption, and the assumptions; or all of it as JSON."""
    document = replay_document(comparison)
    if as_json:
        echo_json(document)
        return
    about = (
        f"{document['trace']}: {document['jobs']:,} jobs, {document['jobsWithDeadline']:,} with a deadline, "
        f"on {document['clusterGPUs']:,} GPUs, seed {document['seed']}"
    )
    parts: list[Any] = [_headline(document), _verdict(document), about]
    for case in document["cases"]:
        parts += [case["assumption"], _table(case["policies"])]
    lines = "\n".join(f"- {name}: {text}" for name, text in document["assumptions"].items())
    show(*parts, f"Assumptions\n{lines}")


def _verdict(document: Mapping[str, Any]) -> str:
    """The cases in which ours is not better than a null policy."""
    if document["worseOnBoth"]:
        where = "; ".join(f"{name} ({case})" for case, name in document["worseOnBoth"])
        return f"Worse on both than: {where}"
    text = f"Nowhere worse on both than {', '.join(NULLS[:-1])} or {NULLS[-1]}"
    if not document["notBetter"]:
        return f"{text}; everywhere fewer GPU-hours or fewer missed deadlines"
    where = "; ".join(f"{name} ({case})" for case, name in document["notBetter"])
    return f"{text}. Not better in either than: {where}"


def _table(policies: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("GPU-hours", "", "missed", "late by", "queue mean", "resizes", "restarts"):
        table.add_column(name, justify="right")
    for policy, row in policies.items():
        table.add_row(
            policy,
            format_count(row["gpuHours"]),
            f"{row['gpuHoursChange']:+.1%}",
            f"{row['missedDeadlines']:,}",
            format_duration(row["meanLatenessSeconds"]),
            format_duration(row["queueMeanSeconds"]),
            f"{row['resizes']:,}",
            f"{row['restartGPUHours']:,.0f} GPU-h",
        )
    return table
