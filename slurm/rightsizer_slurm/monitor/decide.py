"""The decision on a monitored job, and the engine's inputs to it: scaling, reading, limits, history. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from rightsizer_api.placeholders import layout_of
from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.reading import Missing, Phase, Reading
from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.resize.policy import decide, window_s
from rightsizer_engine.resize.scaling import PlanScaling, in_place_pins
from rightsizer_engine.resize.types import Decision, History, JobSize, Limits, Running, Scaling
from rightsizer_engine.search.pricing.options import price_layout
from rightsizer_engine.values import immutable
from rightsizer_launch.running.counters import with_gpu_counters
from rightsizer_launch.running.limits import (
    Tuning,
    gpu_bounds,
    limits_of,
    restart_s,
    running_of,
    seconds_left,
    tokens_left,
)
from rightsizer_launch.running.marks import Mark, start_durations_s, trained_s
from rightsizer_launch.running.readings import reading_of
from rightsizer_launch.running.size_history import SizeChange, history_of, visits_of
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.monitor.inspection import InspectedJob
from rightsizer_slurm.monitor.intent_log import Intent, IntentStage, Kind
from rightsizer_slurm.monitor.size_records import SizeRecord


@immutable
class ReportRow:
    """One job in one sweep: its run, its measurements, the engine's decision.

    `margin_s` is its deadline minus its expected end, negative if it will be late; None if unknown.
    """

    monitored: InspectedJob
    reading: Reading
    decision: Decision
    intent: Intent | None = None
    margin_s: float | None = None

    @property
    def job(self) -> SlurmJob:
        """The job."""
        return self.monitored.job


class NodeScaling:
    """The sizes that Slurm can allocate: whole nodes within the job's bounds, the same layout except dp."""

    def __init__(self, inner: Scaling, *, node_gpus: int, fewest: int, most: int) -> None:
        """`fewest` and `most` are nodes."""
        self._inner = inner
        self._node_gpus = node_gpus
        self._allowed = range(fewest, most + 1)

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[JobSize, ...]:
        """The engine's sizes that Slurm can allocate, and the present one."""
        sizes = self._inner.sizes(gpus=gpus, tokens_per_s=tokens_per_s, steps=steps)
        return tuple(
            size
            for size in sizes
            if size.gpus == gpus
            or (
                size.in_place
                and size.gpus % self._node_gpus == 0
                and size.gpus // self._node_gpus in self._allowed
            )
        )


def decided(
    monitored: InspectedJob,
    gpu: Reading | Missing | None,
    *,
    scaling: Scaling | None,
    tuning: Tuning,
    cluster: SlurmCluster,
    waiting: bool,
    intents: Sequence[Intent],
    now_s: float,
) -> ReportRow:
    """The job's row: what the engine decides on its records, its GPU metrics and its earlier resizes."""
    reading = reading_for(monitored, gpu, tuning=tuning, now_s=now_s)
    running, limits = policy_inputs(
        monitored, reading, scaling=scaling, tuning=tuning, cluster=cluster, waiting=waiting, now_s=now_s
    )
    node_gpus = monitored.run.node_gpus if monitored.run else 1
    past = history(intents, node_gpus, monitored.given_up, monitored.marks)
    decision = decide(reading, running, limits, past, now_s=now_s)
    if isinstance(gpu, Missing):
        decision = replace(decision, reason=str(gpu), missing=gpu)
    margin = margin_s(monitored, reading, now_s=now_s)
    return ReportRow(monitored=monitored, reading=reading, decision=decision, margin_s=margin)


def scaling_of(monitored: InspectedJob) -> Scaling | None:
    """The job's rate by its size; None without a plan. The first use is a search: cache it."""
    resolved, run = monitored.resolved, monitored.run
    if resolved is None or run is None or not run.layout:
        return None
    cluster = lookup.cluster(run.gpu, gpus_per_node=run.node_gpus)
    request = replace(resolved, plan=_undated(resolved.plan)).request(clusters=(cluster,))
    workload = replace(request.workload, global_batch_sequences=run.batch_sequences)
    request = replace(
        request,
        workload=workload,
        spare_nodes=0,
        batch_tolerance=0.0,
        min_gpus=run.fewest_nodes * run.node_gpus,  # the plan's bounds apply to its first size only
        max_gpus=run.most_nodes * run.node_gpus,
    )
    layout = layout_of(run.layout)
    if run.elastic:  # only the number of ranks can change
        request = replace(request, pinned=in_place_pins(layout))
    option, _ = price_layout(request, layout)
    inner = PlanScaling(request=request, option=option)
    if not run.elastic:
        return inner
    return NodeScaling(inner, node_gpus=run.node_gpus, fewest=run.fewest_nodes, most=run.most_nodes)


def reading_for(
    monitored: InspectedJob, gpu: Reading | Missing | None, *, tuning: Tuning, now_s: float
) -> Reading:
    """The job's window: its own records and its GPU metrics; those metrics alone if it has no records.

    If the GPU metrics are missing, nothing is measured.
    """
    run = monitored.run
    window = Limits(
        checkpoint_interval_s=run.checkpoint_interval_s if run else None, least_window_s=tuning.least_window_s
    )
    own = reading_of(monitored.marks, now_s=now_s, window_s=window_s(window), warm_up_s=tuning.warm_up_s)
    if isinstance(gpu, Missing):
        return Reading(phase=own.phase)
    if gpu is not None and own.phase is Phase.TRAINING and (own.age_s or 0.0) > load_resize().stale_s:
        # no step for minutes: its GPU metrics tell whether it is idle
        return replace(gpu, phase=own.phase, steps=own.steps, tokens_done=own.tokens_done)
    return with_gpu_counters(own, gpu) if monitored.marks or gpu is None else gpu


def policy_inputs(
    monitored: InspectedJob,
    reading: Reading,
    *,
    scaling: Scaling | None,
    tuning: Tuning,
    cluster: SlurmCluster,
    waiting: bool,
    now_s: float,
) -> tuple[Running, Limits]:
    """The running job and its limits. A job without a plan is at most flagged."""
    job, run, resolved = monitored.job, monitored.run, monitored.resolved
    if run is None or resolved is None:
        return Running(gpus=job.gpus), Limits(cap=tuning.cap, least_window_s=tuning.least_window_s)
    plan, layout = resolved.plan, replace(layout_of(run.layout), dp=1)
    ranks = max(1, job.nodes * run.node_gpus // layout.gpus)
    running = running_of(
        plan,
        reading,
        gpus=job.nodes * run.node_gpus,
        layout=replace(layout, dp=ranks),
        scaling=scaling,
        target_tokens=resolved.workload.tokens,
        deadline_left_s=seconds_left(run.deadline_at_s, now_s=now_s),
        trained_s=trained_s(monitored.marks, now_s=now_s),
    )
    fixed = plan.spec.resources.gpus is not None  # only a person may change a fixed size
    bounds = (run.fewest_nodes * run.node_gpus, run.most_nodes * run.node_gpus)
    limits = limits_of(
        plan,
        tuning,
        gpus=(running.gpus, running.gpus) if fixed else bounds,
        checkpoint_interval_s=run.checkpoint_interval_s,
        restart_s=restart_s(
            start_durations_s(monitored.marks, monitored.launches_s), prior_s=tuning.restart_s
        ),
        saves_first=False,  # scontrol takes nodes away at once
        free_gpus=free_gpus(cluster, job, run.gres, run.node_gpus),
        others_waiting=waiting,
        look_s=run.first_look_s,
        takes_spare=gpu_bounds(plan)[1] is not None,
    )
    return running, limits


def margin_s(monitored: InspectedJob, reading: Reading, *, now_s: float) -> float | None:
    """Deadline minus expected end, at the measured or else the predicted rate; None: unknown."""
    run, resolved = monitored.run, monitored.resolved
    if run is None or resolved is None or not monitored.job.running:
        return None
    predicted = run.batch_tokens / run.step_s if run.step_s else None
    left_s = seconds_left(run.deadline_at_s, now_s=now_s)
    left = tokens_left(resolved.workload.tokens, reading.tokens_done)
    rate = reading.tokens_per_s or predicted
    return None if left_s is None or left is None or not rate else left_s - left / rate


def history(
    intents: Sequence[Intent],
    node_gpus: int,
    given_up: Sequence[SizeRecord] = (),
    marks: Sequence[Mark] = (),
) -> History:
    """A job's earlier resizes and rates. `given_up` are the sizes that its batch script rolled back from."""
    resizes = [
        SizeChange(
            at_s=intent.began_s,
            failed_gpus=intent.to_nodes * node_gpus if intent.stage is IntentStage.FAILED else None,
            from_gpus=intent.from_nodes * node_gpus,
        )
        for intent in intents
        if intent.kind is not Kind.SUSPEND
        if intent.attempts or intent.stage in {IntentStage.DONE, IntentStage.FAILED}
    ]
    rollbacks = [SizeChange(at_s=row.time, failed_gpus=row.nodes * node_gpus) for row in given_up]
    return replace(history_of((*resizes, *rollbacks)), visited=visits_of(marks))


def free_gpus(cluster: SlurmCluster, job: SlurmJob, gres: str, node_gpus: int) -> int:
    """Free GPUs of the job's type in its partition, as whole shares of a node."""
    partition = cluster.partition(job.partition)
    nodes = cluster.nodes_of(partition) if partition else ()
    return node_gpus * sum(
        node.up and node.gpu == gres and node.gpus - node.gpus_used >= node_gpus for node in nodes
    )


def others_wait(jobs: Sequence[SlurmJob], job: SlurmJob) -> bool:
    """Whether other jobs wait for GPUs in a job's partition. Held jobs and jobs with a begin time do not."""
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
    """The plan without its deadline: a deadline in the past would be refused."""
    return plan.model_copy(update={"spec": plan.spec.model_copy(update={"deadline": None})})
