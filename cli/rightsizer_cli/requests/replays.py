"""`simulate`: one trace replayed under every policy, for each assumption on what the trace lacks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rightsizer_cli.requests.trace_jobs import Draw, default_cluster_gpus, draw_jobs
from rightsizer_cli.requests.traces import Trace
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.fleet.bound import bound
from rightsizer_engine.fleet.simulation import replay
from rightsizer_engine.fleet.trace_jobs import POLICIES, ReplayOutcome, ReplayRules, TraceJob
from rightsizer_engine.values import immutable

STATIC, OURS, BOUND = "static", "staged, OnPressure", "bound"
NULLS = (STATIC, "one GPU each", "half of each")


@immutable
class ReplayCase:
    """One assumption: the values drawn for the trace, and the outcome under each policy."""

    draw: Draw
    jobs: tuple[TraceJob, ...]
    outcomes: Mapping[str, ReplayOutcome]

    @property
    def name(self) -> str:
        """The assumption as text."""
        low, high = self.draw.deadlines or (0.0, 0.0)
        deadlines = f"{low:g} to {high:g} x duration" if self.draw.deadlines else "none"
        return f"scaling {self.draw.scaling}, deadlines {deadlines}"


@immutable
class ReplayComparison:
    """A trace, the cluster, and the cases."""

    trace: Trace
    rules: ReplayRules
    cluster_gpus: int
    cases: tuple[ReplayCase, ...]


def compare(
    trace: Trace, draws: Sequence[Draw], rules: ReplayRules, cluster_gpus: int | None
) -> ReplayComparison:
    """Replay the trace under every policy and assumption."""
    gpus = default_cluster_gpus(trace.rows) if cluster_gpus is None else cluster_gpus
    largest = max(row.gpus for row in trace.rows)
    if gpus < largest:
        remedy = f"is less than the largest job's {largest} GPUs"
        raise OptionError("--cluster-gpus", value=gpus, remedy=remedy)
    cases = []
    for draw in draws:
        jobs = draw_jobs(trace.rows, draw)
        outcomes = {
            name: replay(jobs, gpus=gpus, policy=policy, rules=rules) for name, policy in POLICIES.items()
        }
        outcomes[BOUND] = bound(jobs, gpus=gpus, rules=rules)
        cases.append(ReplayCase(draw=draw, jobs=jobs, outcomes=outcomes))
    return ReplayComparison(trace=trace, rules=rules, cluster_gpus=gpus, cases=tuple(cases))


def with_options(rules: ReplayRules, **changes: Any) -> ReplayRules:
    """The rules with some of their limits changed."""
    return replace(rules, limits=replace(rules.limits, **changes))
