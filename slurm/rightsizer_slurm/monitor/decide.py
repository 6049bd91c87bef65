"""From a watched job and what the cluster has to the engine's decision. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from rightsizer.catalog import lookup
from rightsizer.domain.reading import Reading
from rightsizer.resize.policy import decide
from rightsizer.resize.scaling import PlanScaling, in_place_pins
from rightsizer.resize.types import Decision, History, Limits, Mode, Running, Scaling, Size
from rightsizer.search.options import price_layout
from rightsizer.values import immutable
from rightsizer_api import sizing
from rightsizer_api.placeholders import layout_of
from rightsizer_api.plan import TrainingPlan
from rightsizer_slurm.cluster.jobs import Job
from rightsizer_slurm.cluster.snapshot import Cluster
from rightsizer_slurm.monitor.inspection import Watched
from rightsizer_slurm.monitor.intent_log import Intent, Stage
from rightsizer_slurm.monitor.readings import trained_s
from rightsizer_slurm.monitor.size_history import Sized

__all__ = [
    "NodeScaling",
    "Tuning",
    "decision",
    "free_gpus",
    "history",
    "margin_s",
    "others_wait",
    "scaling_of",
]


@immutable
class Tuning:
    """What a site sets: the most that may be done, pauses, and how long a job is looked at first."""

    cap: Mode = Mode.RECOMMEND
    cool_down_s: float = 3600.0
    restart_s: float = 600.0
    warm_up_s: float = 600.0
    least_window_s: float = 600.0


class NodeScaling:
    """Sizes that Slurm can give: whole nodes, within the job's own bounds, by the number of ranks alone."""

    def __init__(self, inner: Scaling, *, node_gpus: int, fewest: int, most: int) -> None:
        """`fewest` and `most` are nodes."""
        self._inner = inner
        self._node_gpus = node_gpus
        self._allowed = range(fewest, most + 1)

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[Size, ...]:
        """Those of the engine's sizes; the present one always."""
        found = self._inner.sizes(gpus=gpus, tokens_per_s=tokens_per_s, steps=steps)
        return tuple(
            size
            for size in found
            if size.gpus == gpus
            or (
                size.in_place
                and size.gpus % self._node_gpus == 0
                and size.gpus // self._node_gpus in self._allowed
            )
        )


def scaling_of(one: Watched) -> Scaling | None:
    """How the job's rate depends on its size; None where it is not ours. Worth keeping: it searches."""
    if one.plan is None or one.run is None or not one.run.layout:
        return None
    run = one.run
    cluster = lookup.cluster(run.gpu, gpus_per_node=run.node_gpus)
    request = sizing.resolve(_undated(one.plan)).request(clusters=(cluster,))
    workload = replace(request.workload, global_batch_sequences=run.batch_sequences)
    request = replace(
        request,
        workload=workload,
        spare_nodes=0,
        batch_tolerance=0.0,
        min_gpus=run.fewest_nodes * run.node_gpus,  # the job's bounds; the plan's own say how it starts
        max_gpus=run.most_nodes * run.node_gpus,
    )
    layout = layout_of(run.layout)
    if run.elastic:  # only the number of ranks can change: nothing else is priced
        request = replace(request, pinned=in_place_pins(layout))
    option, _ = price_layout(request, layout)
    inner = PlanScaling(request=request, option=option)
    if not run.elastic:
        return inner
    return NodeScaling(inner, node_gpus=run.node_gpus, fewest=run.fewest_nodes, most=run.most_nodes)


def decision(
    one: Watched,
    reading: Reading,
    *,
    scaling: Scaling | None,
    past: History,
    tuning: Tuning,
    here: Cluster,
    waiting: bool,
    now_s: float,
) -> Decision:
    """What the engine says about one job."""
    job, run, plan = one.job, one.run, one.plan
    if run is None or plan is None:
        limits = Limits(cap=tuning.cap, least_window_s=tuning.least_window_s)
        return decide(reading, Running(gpus=job.gpus), limits, past, now_s=now_s)
    layout = replace(layout_of(run.layout), dp=1)
    ranks = max(1, job.nodes * run.node_gpus // layout.gpus)
    deadline = plan.spec.deadline
    running = Running(
        gpus=job.nodes * run.node_gpus,
        layout=replace(layout, dp=ranks),
        scaling=scaling,
        tokens_left=_tokens_left(plan, reading),
        deadline_left_s=None if run.deadline_at_s is None else run.deadline_at_s - now_s,
        confidence=deadline.confidence if deadline else 0.9,
        trained_s=trained_s(one.records, now_s=now_s),
    )
    fixed = plan.spec.resources.gpus is not None  # only a person changes such a size
    limits = Limits(
        mode=Mode(str(plan.spec.elasticity.mode)),
        cap=tuning.cap,
        min_gpus=running.gpus if fixed else run.fewest_nodes * run.node_gpus,
        max_gpus=running.gpus if fixed else run.most_nodes * run.node_gpus,
        free_gpus=free_gpus(here, job, run.gres, run.node_gpus),
        cool_down_s=tuning.cool_down_s,
        checkpoint_interval_s=run.checkpoint_interval_s,
        restart_s=tuning.restart_s,
        warm_up_s=tuning.warm_up_s,
        least_window_s=tuning.least_window_s,
        others_waiting=waiting,
    )
    return decide(reading, running, limits, past, now_s=now_s)


def margin_s(one: Watched, reading: Reading, *, now_s: float) -> float | None:
    """Deadline minus end of a running job, at its measured rate, else as predicted; None: not known."""
    run, plan = one.run, one.plan
    if run is None or plan is None or run.deadline_at_s is None or not one.job.running:
        return None
    predicted = run.batch_tokens / run.step_s if run.step_s else None
    left, rate = _tokens_left(plan, reading), reading.tokens_per_s or predicted
    if left is None or not rate:
        return None
    return run.deadline_at_s - (now_s + left / rate)


def _tokens_left(plan: TrainingPlan, reading: Reading) -> float | None:
    if reading.tokens_done is None:
        return None
    return max(0.0, sizing.resolve(plan).workload.tokens - reading.tokens_done)


def history(intents: Sequence[Intent], node_gpus: int, given_up: Sequence[Sized] = ()) -> History:
    """What was done to a job before, as the engine wants to know it; `given_up` is what its script says."""
    begun = [intent.began_s for intent in intents if intent.attempts or intent.stage is Stage.DONE]
    good = [intent.to_nodes for intent in intents if intent.stage is Stage.DONE]
    failed = [intent.to_nodes for intent in intents if intent.stage is Stage.FAILED]
    failed += [row.nodes for row in given_up]
    return History(
        last_resize_s=max((*begun, *(row.time for row in given_up)), default=None),
        last_good_gpus=good[-1] * node_gpus if good else None,
        failed_gpus=tuple(sorted({nodes * node_gpus for nodes in failed})),
    )


def free_gpus(here: Cluster, job: Job, gres: str, node_gpus: int) -> int:
    """GPUs of the job's kind that are free in its partition, in nodes' worth."""
    partition = here.partition(job.partition)
    nodes = here.nodes_of(partition) if partition else ()
    return node_gpus * sum(
        node.up and node.gpu == gres and node.gpus - node.gpus_used >= node_gpus for node in nodes
    )


def others_wait(jobs: Sequence[Job], job: Job) -> bool:
    """Whether other jobs wait for GPUs in a job's partition, and not because they are held or timed."""
    return any(
        other.pending
        and not other.held
        and other.gpus
        and other.job_id != job.job_id
        and job.partition in other.partition.split(",")
        and other.reason in {"Resources", "Priority", "None", ""}
        for other in jobs
    )


def _undated(plan: TrainingPlan) -> TrainingPlan:
    """The plan without its deadline: a moment that is past must not hinder the reading of the rest."""
    return plan.model_copy(update={"spec": plan.spec.model_copy(update={"deadline": None})})
