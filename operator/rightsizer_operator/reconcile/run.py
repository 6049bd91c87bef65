"""Keep the sized attempt running: create, patch and delete its children. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_api.state import ConditionType, RunningReason, State
from rightsizer_operator.manifests import carriers, claims, isolation, objects
from rightsizer_operator.manifests.pod_spec import AttemptLaunch
from rightsizer_operator.reconcile.attempts import with_digest, with_launch
from rightsizer_operator.reconcile.failures import ended, start_check
from rightsizer_operator.reconcile.lifetime import active_deadline_s
from rightsizer_operator.reconcile.queueing import poll_s, reconcile_workloads
from rightsizer_operator.reconcile.size import node_requirements
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.reconcile.worker_share import with_share
from rightsizer_operator.values import names
from rightsizer_operator.values.actions import Apply, Delete, EmitEvent, PatchJob, Requeue
from rightsizer_operator.values.carriers import carrier_kind
from rightsizer_operator.values.conditions import no, unknown, yes
from rightsizer_operator.values.pods import PodPhase
from rightsizer_operator.values.snapshot import AttemptJob

_DELETED_AT_END = ("NetworkPolicy", "ReplicaSet", "Service")
"""Children that are deleted when training ends; a finished Job keeps its ConfigMap."""
_DEAD_NODE_RECHECK_S = 5.0


def run(state: ReconcileState) -> ReconcileState:
    """Bring the children to what the plan is sized to."""
    if state.persisted.sized is None or state.persisted.attempt is None:
        return state.then(Admitted=unknown("NotSized"), Running=no("NotSized"))
    state = _delete_pods_on_dead_nodes(state)
    if state.older_jobs:
        return state.then(
            *_delete_older_jobs(state),
            Resizing=yes(State.RELAYOUT, "the previous attempt is saving a checkpoint and stopping"),
            Admitted=no(State.RELAYOUT, "waiting for the previous attempt to stop"),
            Running=no(State.RELAYOUT),
        )
    job = state.job
    if job is None:
        return _launch(state)
    if job.finished or job.deleting:
        return state
    return _update(state, job)


def clean_up(state: ReconcileState) -> ReconcileState:
    """Delete all children but the finished Job, which keeps its logs until its TTL expires.

    At its deadline a Job fails before its workers have ended: they save first, and need the store for that.
    """
    job = state.job
    if job is not None and job.reason == names.DEADLINE_EXCEEDED and job.terminating:
        return state.then(*_delete_older_jobs(state))
    children = sorted(child.partition("/")[::2] for child in state.snapshot.children)
    ended = tuple(Delete(kind=kind, name=name) for kind, name in children if kind in _DELETED_AT_END)
    return state.then(*ended, *_delete_older_jobs(state))


def _launch(state: ReconcileState) -> ReconcileState:
    """Create the Job once enough GPUs are free. A started attempt's Job is recreated without that check."""
    attempt, queued = state.persisted.attempt, state.snapshot.queue is not None
    if attempt is None:
        return state
    if state.plan.spec.suspend:
        return state.then(Admitted=no(State.SUSPENDED), Running=no(State.SUSPENDED))
    state = with_digest(state)
    launch = state.launch
    assert launch is not None, "an attempt has a size"
    if attempt.started is None and not queued:
        requirements = node_requirements(state.plan)
        free = state.snapshot.inventory.free(requirements, launch.gpu_type, launch.gpus_per_pod)
        if free < launch.layout.gpus:
            needs = f"needs {launch.layout.gpus} x {launch.gpu_type} in pods of {launch.gpus_per_pod}"
            lacks = state.snapshot.inventory.shortfall(
                replace(requirements, types=(launch.gpu_type,)), launch.gpus_per_pod
            )
            message = f"{needs}; {free} free" + (f": {lacks}" if lacks else "")
            return state.then(
                Requeue(after_s=state.snapshot.settings.retry_s),
                Admitted=no(State.WAITING_FOR_GPUS, message),
                Running=no(RunningReason.NOT_ADMITTED),
            )
    started = attempt if attempt.started else replace(attempt, started=state.snapshot.now)
    if attempt.number > 1:
        state = _without_store(state)
    missing, launch = _missing(state, launch), with_share(state, launch)
    state = replace(state, persisted=replace(state.persisted, attempt=started))
    admitted = no(State.QUEUED, "waiting for its queue") if queued else yes(ConditionType.ADMITTED)
    if state.snapshot.rejection:
        admitted = no(State.REFUSED, state.snapshot.rejection)
    return state.then(
        *missing,
        Apply(child=isolation.rendezvous_key(launch)),
        *(Apply(child=each) for each in carriers.carried(launch, active_deadline_s=active_deadline_s(state))),
        Admitted=admitted,
        Running=no(State.STARTING, f"starting attempt {attempt.number}"),
    )


def _without_store(state: ReconcileState) -> ReconcileState:
    """Delete the store of the earlier attempt: the plan's template may have changed."""
    name, children = names.rendezvous_name(state.plan.metadata.name), state.snapshot.children
    if f"ReplicaSet/{name}" not in children:
        return state
    kept = replace(state.snapshot, children=children - {f"ReplicaSet/{name}"})
    return replace(state, snapshot=kept).then(Delete(kind="ReplicaSet", name=name))


def _update(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    """Recreate missing children, resize an elastic Job, suspend or resume it; end it if it keeps failing."""
    if job.is_active:
        failed = ended(state, job)
        if failed is not None:
            return failed
        state = start_check(state, job)
    state = with_launch(state)
    launch = state.launch
    assert launch is not None, "a plan that has a Job has a size"
    queued = state.snapshot.queue is not None
    patch: dict[str, Any] = {}
    if job.parallelism != launch.pods and job.elastic:
        patch = {"parallelism": launch.pods, "completions": launch.pods}
    deadline_s = active_deadline_s(state)
    if job.started_at is not None and not job.ending and job.active_deadline_s != deadline_s:
        patch |= {"activeDeadlineSeconds": deadline_s}
    state = state.then(*_missing(state, launch))
    complete = job.ready >= job.parallelism and state.snapshot.rendezvous_ready
    if not queued and job.is_active and not complete:
        state = state.then(Requeue(after_s=poll_s(state)))  # pods change without their Job
    if patch:
        state = state.then(PatchJob(name=job.job_name, spec=patch))
    if job.suspended != state.plan.spec.suspend and not queued:
        state = state.then(PatchJob(kind=job.kind, name=job.name, spec={"suspend": state.plan.spec.suspend}))
    return reconcile_workloads(state, job) if queued else state


def _missing(state: ReconcileState, launch: AttemptLaunch) -> list[Apply]:
    """The plan's children, the Job and its key apart, that do not exist."""
    children = (
        *isolation.network_policies(launch),  # first: no pod is reachable before they hold
        objects.settings_map(launch),
        claims.claim_template(launch),
        objects.service(launch),
        objects.rendezvous(launch),
    )
    return [
        Apply(child=child)
        for child in children
        if child and _kind_and_name(child) not in state.snapshot.children
    ]


def _kind_and_name(child: Mapping[str, Any]) -> str:
    return f"{child['kind']}/{child['metadata']['name']}"


def _delete_older_jobs(state: ReconcileState) -> tuple[Delete, ...]:
    return tuple(
        Delete(kind=kind, name=job.name)
        for job in state.older_jobs
        if not job.deleting
        for kind in carrier_kind(job.kind).objects
    )


def _delete_pods_on_dead_nodes(state: ReconcileState) -> ReconcileState:
    """Force-delete terminating pods on dead nodes, so that the Job replaces them on other nodes.

    The node has been silent for longer than the rendezvous waits for an agent, so the other workers have
    re-formed the world or wait for one. A worker that still runs on the node can only rejoin as a new member.
    """
    snapshot = state.snapshot
    for pod in snapshot.pods:
        if pod.role != names.WORKER:
            continue  # a ReplicaSet does not wait for a pod that is being deleted
        if (
            pod.deletion_deadline is None
            or pod.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}
            or not pod.node
        ):
            continue
        if snapshot.inventory.is_dead(pod.node, now=snapshot.now, after_s=snapshot.settings.dead_node_s):
            message = f"force-deleted pod {pod.name}: its node {pod.node} does not respond"
            state = state.then(
                Delete(kind="Pod", name=pod.name, uid=pod.uid, force=True),
                EmitEvent(reason="DeadNode", message=message, warning=True),
            )
        else:
            state = state.then(Requeue(after_s=_DEAD_NODE_RECHECK_S))
    return state
