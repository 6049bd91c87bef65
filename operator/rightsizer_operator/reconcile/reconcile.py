"""The one decision: a snapshot of the world in, actions out. Pure.

Level-triggered: nothing depends on what happened, only on what is. Actions come in the order in which they
must be carried out; if any is lost, the next decision asks for what is still missing. The status comes first:
it is the journal.
"""

import datetime as dt
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rightsizer.errors import InputError, UnsupportedError
from rightsizer_api import validate
from rightsizer_api.plan import Metadata, TrainingPlan
from rightsizer_api.quantities import format_time, parse_time
from rightsizer_operator.manifests import isolation, objects
from rightsizer_operator.manifests.pod_spec import Launch
from rightsizer_operator.reconcile.attempts import attempted, launch_of, running_of
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.reconcile.resize import advised, fallen_back, proven
from rightsizer_operator.reconcile.size import decide, node_requirements
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.reconcile.status import run_conditions, status_document
from rightsizer_operator.values import names
from rightsizer_operator.values.actions import (
    Action,
    Apply,
    Delete,
    EmitEvent,
    PatchJob,
    PatchStatus,
    PatchWorkload,
    Requeue,
)
from rightsizer_operator.values.conditions import is_true, no, reason_of, unknown, updated, yes
from rightsizer_operator.values.kueue import Workload
from rightsizer_operator.values.snapshot import AttemptJob, Snapshot

__all__ = ["reconcile"]

_WARNINGS = ("Invalid", "NoPlan", "InsufficientGPUs", "NoSuchGPUs", "DeadlinePassed", "Refused", "Failed")
_QUIET = ("Sized", "Starting")
_ENDING = ("NetworkPolicy", "ReplicaSet", "Service")
"""Children that end with the training; a finished Job keeps its ConfigMap."""
_QUEUE_SOON_S = 2.0
_OVERLOOKED_S = 10.0
"""A pod of an admitted Job that its queue holds back for longer was overlooked: it takes well below 1 s."""


def reconcile(snapshot: Snapshot) -> tuple[Action, ...]:
    """What to do now for one plan; nothing when all is as it should be."""
    if "deletionTimestamp" in snapshot.plan["metadata"]:
        return ()  # the children are garbage-collected, and asked to save while they go
    try:
        state = ReconcileState(
            snapshot=snapshot,
            plan=_plan_of(snapshot.plan),
            persisted=PersistedStatus.of(snapshot.status, snapshot.jobs),
        )
        changed = state.persisted.generation != state.generation
        state = state if changed else fallen_back(proven(state))
        if _ended(state) and not changed:
            return _finish(_clean(state))
        return _finish(_run(state if not changed and state.resized else advised(_size(state))))
    except (InputError, UnsupportedError) as error:
        return _refuse(snapshot, str(error))


def _plan_of(raw: Mapping[str, Any]) -> TrainingPlan:
    """The plan as a value, read once for many looks at it, whatever becomes of its status."""
    metadata = {name: value for name, value in raw["metadata"].items() if name in Metadata.model_fields}
    said = {name: value for name, value in raw.items() if name != "status"} | {"metadata": metadata}
    return _read(json.dumps(said))


@functools.lru_cache(maxsize=256)
def _read(text: str) -> TrainingPlan:
    return validate(json.loads(text))


def _size(state: ReconcileState) -> ReconcileState:
    """Size the plan, if its spec is new or it has no size yet; a new launch makes a new attempt."""
    snapshot, persisted = state.snapshot, state.persisted
    fresh = persisted.generation < state.generation
    if not fresh and persisted.report is not None and is_true(snapshot.status, "Sized"):
        return state
    if not state.plan.spec.launch.command or not state.plan.spec.launch.image:
        missing = "command" if not state.plan.spec.launch.command else "image"
        raise InputError(f"spec.launch.{missing}", value=None, remedy="is required to run on Kubernetes")
    decision = decide(
        state.plan,
        inventory=snapshot.inventory,
        now=snapshot.now,
        created=state.created,
        running=running_of(state),
        quota_gpus=_limit(snapshot),
        inter_gbps=snapshot.settings.inter_node_gbps,
    )
    persisted = replace(persisted, generation=state.generation)
    if decision.report is None:
        accepted = yes("Valid") if decision.possible else no(decision.reason, decision.message)
        sized = no(decision.reason, decision.message)
        state = replace(state, persisted=persisted).then(Accepted=accepted, Sized=sized)
        return state if persisted.report else state.then(Requeue(after_s=snapshot.settings.retry_s))
    state = replace(state, persisted=attempted(state, decision.report, persisted))
    return state.then(
        EmitEvent(reason="Sized", message=decision.message),
        Accepted=yes("Valid", _advice(state.plan)),
        Sized=yes("Sized", decision.message),
    )


def _run(state: ReconcileState) -> ReconcileState:
    """See that what is sized runs."""
    if state.persisted.report is None or state.persisted.attempt is None:
        waiting = unknown("NotSized")
        return state.then(Admitted=waiting, Running=no("NotSized"))
    state = _free_dead(state)
    if state.older_jobs:
        gone = tuple(Delete(kind="Job", name=job.name) for job in state.older_jobs if not job.deleting)
        return state.then(
            *gone,
            Resizing=yes("Relayout", "the attempt before saves and leaves"),
            Admitted=no("Relayout", "waits for the attempt before"),
            Running=no("Relayout"),
        )
    job = state.job
    if job is None:
        return _start(state)
    if job.finished or job.deleting:
        return state
    return _adjust(state, job)


def _start(state: ReconcileState) -> ReconcileState:
    """Launch, once there is room; what has been started once is put back without asking again."""
    attempt, queued = state.persisted.attempt, state.snapshot.queue is not None
    if attempt is None:
        return state
    if state.plan.spec.suspend:
        return state.then(Admitted=no("Suspended"), Running=no("Suspended"))
    launch = launch_of(state, attempt=attempt.number)
    if attempt.started is None and not queued:
        free = state.snapshot.inventory.free(
            node_requirements(state.plan), launch.gpu_type, launch.gpus_per_pod
        )
        if free < launch.layout.gpus:
            message = f"needs {launch.layout.gpus} x {launch.gpu_type}, {free} are free"
            waits = no("WaitingForGPUs", message)
            return state.then(
                Requeue(after_s=state.snapshot.settings.retry_s), Admitted=waits, Running=no("NotAdmitted")
            )
    started = attempt if attempt.started else replace(attempt, started=state.snapshot.now)
    missing = _missing(state, launch)
    state = replace(state, persisted=replace(state.persisted, attempt=started))
    admitted = no("Queued", "waits for its queue") if queued else yes("Admitted")
    if state.snapshot.refusal:
        admitted = no("Refused", state.snapshot.refusal)
    return state.then(
        *missing,
        Apply(child=isolation.rendezvous_key(launch)),
        Apply(child=objects.job(launch)),
        Admitted=admitted,
        Running=no("Starting", f"attempt {attempt.number} starts"),
    )


def _missing(state: ReconcileState, launch: Launch) -> list[Apply]:
    """The plan's other objects that are not there."""
    children = (
        *isolation.network_policies(launch),  # first: no pod is reachable before they hold
        objects.settings_map(launch),
        objects.service(launch),
        objects.rendezvous(launch),
    )
    return [
        Apply(child=child) for child in children if child and _support(child) not in state.snapshot.supports
    ]


def _adjust(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    """Bring a live Job to the wished size, and stop or continue it; its workers' store must be there."""
    launch = launch_of(state, attempt=job.attempt)
    queued = state.snapshot.queue is not None
    wished, patch = launch.pods, {}
    missing = _missing(state, launch)
    if job.parallelism != wished and job.elastic:
        patch = {"parallelism": wished, "completions": wished}
    if job.suspended != state.plan.spec.suspend and not queued:
        patch["suspend"] = state.plan.spec.suspend
    state = state.then(*missing)
    if patch:
        state = state.then(PatchJob(name=job.name, spec=patch))
    return _ask_queue(state, job) if queued else state


def _ask_queue(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    """A queued Job is Kueue's to stop and to start; it is asked to, and looked at again while it waits."""
    asked = state.plan.spec.suspend
    held = [each for each in state.snapshot.workloads if not each.finished]
    state = state.then(
        *(PatchWorkload(name=each.name, active=not asked) for each in held if each.active == asked)
    )
    if _overlooked(state, job, held):
        state = state.then(
            PatchJob(name=job.name, spec={}, notes={names.NUDGED: format_time(state.snapshot.now)})
        )
    if not asked and (job.suspended or job.ready < job.parallelism):
        since = parse_time(state.condition("Admitted").get("lastTransitionTime")) or state.snapshot.now
        waited_s = (state.snapshot.now - since).total_seconds()
        return state.then(
            Requeue(after_s=min(max(_QUEUE_SOON_S, waited_s / 4), state.snapshot.settings.retry_s))
        )
    return state.then(Requeue(after_s=_QUEUE_SOON_S)) if asked and not job.suspended else state


def _overlooked(state: ReconcileState, job: AttemptJob, held: Sequence[Workload]) -> bool:
    """Whether Kueue admitted the Job and forgot a pod of it, which any change of the Job makes it look at.

    Kueue 0.15 and 0.16 let pods of elastic Jobs go when the Job changes, and miss those that come just after
    (kubernetes-sigs/kueue issue 9879).
    """

    def long_ago(time: dt.datetime | None) -> bool:
        return time is None or (state.snapshot.now - time).total_seconds() >= _OVERLOOKED_S

    gated = [pod for pod in state.snapshot.pods if pod.gated and pod.attempt == job.attempt]
    admitted = bool(held) and all(each.active and each.admitted for each in held)
    return admitted and long_ago(job.nudged) and any(long_ago(pod.created) for pod in gated)


def _free_dead(state: ReconcileState) -> ReconcileState:
    """Pods that are stuck on a dead node are removed, so that the Job replaces them elsewhere.

    The node has then been silent for longer than the rendezvous waits for an agent, so the others have gone
    on (or wait) without them; should one live on unseen, it can only ever be one more member of that world.
    """
    snapshot = state.snapshot
    for pod in snapshot.pods:
        if pod.deletes_by is None or pod.phase in {"Succeeded", "Failed"} or not pod.node:
            continue
        if snapshot.inventory.dead(pod.node, now=snapshot.now, after_s=snapshot.settings.dead_node_s):
            message = f"pod {pod.name} was stuck on dead node {pod.node}"
            state = state.then(
                Delete(kind="Pod", name=pod.name, uid=pod.uid, force=True),
                EmitEvent(reason="DeadNode", message=message, warning=True),
            )
        else:
            state = state.then(Requeue(after_s=5))
    return state


def _clean(state: ReconcileState) -> ReconcileState:
    """After the end only the Job stays, with its logs, until its time is over."""
    supports = sorted(support.partition("/")[::2] for support in state.snapshot.supports)
    left = tuple(Delete(kind="Job", name=job.name) for job in state.older_jobs if not job.deleting)
    ended = tuple(Delete(kind=kind, name=name) for kind, name in supports if kind in _ENDING)
    return state.then(*ended, *left)


def _finish(state: ReconcileState) -> tuple[Action, ...]:
    """The actions in order, the status first where it changes, events last."""
    snapshot = state.snapshot
    state = run_conditions(state)
    status = status_document(state)
    status["conditions"] = updated(
        snapshot.status.get("conditions", ()), state.conditions, generation=state.generation, now=snapshot.now
    )
    return _ordered(snapshot, status, state.actions)


def _ordered(
    snapshot: Snapshot, status: Mapping[str, Any], actions: tuple[Action, ...]
) -> tuple[Action, ...]:
    before, after = reason_of(snapshot.status, "Ready"), reason_of(status, "Ready")
    told = [action for action in actions if isinstance(action, EmitEvent)]
    if before != after and after not in _QUIET:
        message = next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
        told.append(EmitEvent(reason=after, message=message or after, warning=after in _WARNINGS))
    changed = (PatchStatus(status=status),) if status != snapshot.status else ()
    rest = tuple(action for action in actions if not isinstance(action, EmitEvent))
    return (*changed, *rest, *told)


def _refuse(snapshot: Snapshot, message: str) -> tuple[Action, ...]:
    """A plan that cannot be: it says so, and whatever runs is left alone."""
    conditions = {"Accepted": no("Invalid", message), "Sized": no("Invalid", message)}
    if not any(job.is_active for job in snapshot.jobs):
        conditions |= {"Ready": no("Invalid", message)}
    generation = int(snapshot.plan["metadata"].get("generation", 1))
    status = dict(snapshot.status) | {"observedGeneration": generation}
    status["conditions"] = updated(
        snapshot.status.get("conditions", ()), conditions, generation=generation, now=snapshot.now
    )
    return _ordered(snapshot, status, ())


def _ended(state: ReconcileState) -> bool:
    """Whether the current attempt is over; its Job may be gone since."""
    job = state.job
    if job is not None and job.finished:
        return True
    return job is None and (
        is_true(state.snapshot.status, "Complete") or is_true(state.snapshot.status, "Failed")
    )


def _limit(snapshot: Snapshot) -> int | None:
    """The most GPUs that this plan may ever hold, by the namespace's quotas and its queue's."""
    limits = (snapshot.quota_gpus, snapshot.queue.gpus if snapshot.queue else None)
    return min((limit for limit in limits if limit is not None), default=None)


def _support(child: Mapping[str, Any]) -> str:
    return f"{child['kind']}/{child['metadata']['name']}"


def _advice(plan: TrainingPlan) -> str:
    """What is allowed but most likely a mistake."""
    checkpoint, template = plan.spec.launch.checkpoint, plan.spec.launch.pod_template
    if checkpoint is None:
        return "there is no spec.launch.checkpoint: any failure starts the training over"
    containers = ((template.spec if template else None) or {}).get("containers", ())
    mounts = [m.get("mountPath", "") for c in containers for m in c.get("volumeMounts") or ()]
    inside = any(f"{checkpoint.path}/".startswith(mount.rstrip("/") + "/") for mount in mounts)
    return "" if inside else f"no volume is mounted at {checkpoint.path}: checkpoints die with their pods"
