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
from rightsizer_operator.manifests import isolation, objects
from rightsizer_operator.manifests.pod_spec import Launch
from rightsizer_operator.reconcile.attempts import attempted, launch_of, running_of
from rightsizer_operator.reconcile.persisted import Journal
from rightsizer_operator.reconcile.resize import advised, fallen_back, proven
from rightsizer_operator.reconcile.size import decide, wish_of
from rightsizer_operator.reconcile.state import Case
from rightsizer_operator.reconcile.status import run_conditions, status_document
from rightsizer_operator.values import names
from rightsizer_operator.values.actions import (
    Action,
    Apply,
    Delete,
    Emit,
    PatchJob,
    PatchStatus,
    PatchWorkload,
    Requeue,
)
from rightsizer_operator.values.conditions import holds, no, reason_of, unknown, updated, yes
from rightsizer_operator.values.kueue import Workload
from rightsizer_operator.values.snapshot import Job, Snapshot, moment, stamp

__all__ = ["reconcile"]

_WARNINGS = ("Invalid", "NoPlan", "InsufficientGPUs", "NoSuchGPUs", "DeadlinePassed", "Refused", "Failed")
_QUIET = ("Sized", "Starting")
_ENDING = ("NetworkPolicy", "ReplicaSet", "Service")
"""Children that end with the training; a finished Job keeps its ConfigMap."""
_QUEUE_SOON_S = 2.0
_OVERLOOKED_S = 10.0
"""A pod of an admitted Job that its queue holds back for longer was overlooked: it takes well below 1 s."""


def reconcile(world: Snapshot) -> tuple[Action, ...]:
    """What to do now for one plan; nothing when all is as it should be."""
    if "deletionTimestamp" in world.plan["metadata"]:
        return ()  # the children are garbage-collected, and asked to save while they go
    try:
        case = Case(world=world, plan=_plan_of(world.plan), journal=Journal.of(world.status, world.jobs))
        changed = case.journal.generation != case.generation
        case = case if changed else fallen_back(proven(case))
        if _ended(case) and not changed:
            return _finish(_clean(case))
        return _finish(_run(case if not changed and case.resized else advised(_size(case))))
    except (InputError, UnsupportedError) as error:
        return _refuse(world, str(error))


def _plan_of(raw: Mapping[str, Any]) -> TrainingPlan:
    """The plan as a value, read once for many looks at it, whatever becomes of its status."""
    metadata = {name: value for name, value in raw["metadata"].items() if name in Metadata.model_fields}
    said = {name: value for name, value in raw.items() if name != "status"} | {"metadata": metadata}
    return _read(json.dumps(said))


@functools.lru_cache(maxsize=256)
def _read(text: str) -> TrainingPlan:
    return validate(json.loads(text))


def _size(case: Case) -> Case:
    """Size the plan, if its spec is new or it has no size yet; a new launch makes a new attempt."""
    world, journal = case.world, case.journal
    fresh = journal.generation < case.generation
    if not fresh and journal.report is not None and holds(world.status, "Sized"):
        return case
    if not case.plan.spec.launch.command or not case.plan.spec.launch.image:
        missing = "command" if not case.plan.spec.launch.command else "image"
        raise InputError(f"spec.launch.{missing}", value=None, remedy="is required to run on Kubernetes")
    decision = decide(
        case.plan,
        inventory=world.inventory,
        now=world.now,
        created=case.created,
        running=running_of(case),
        quota_gpus=_limit(world),
        inter_gbps=world.settings.inter_node_gbps,
    )
    journal = replace(journal, generation=case.generation)
    if decision.report is None:
        accepted = yes("Valid") if decision.possible else no(decision.reason, decision.message)
        sized = no(decision.reason, decision.message)
        case = replace(case, journal=journal).then(Accepted=accepted, Sized=sized)
        return case if journal.report else case.then(Requeue(after_s=world.settings.retry_s))
    case = replace(case, journal=attempted(case, decision.report, journal))
    return case.then(
        Emit(reason="Sized", message=decision.message),
        Accepted=yes("Valid", _advice(case.plan)),
        Sized=yes("Sized", decision.message),
    )


def _run(case: Case) -> Case:
    """See that what is sized runs."""
    if case.journal.report is None or case.journal.attempt is None:
        waiting = unknown("NotSized")
        return case.then(Admitted=waiting, Running=no("NotSized"))
    case = _free_dead(case)
    if case.older:
        gone = tuple(Delete(kind="Job", name=job.name) for job in case.older if not job.deleting)
        return case.then(
            *gone,
            Resizing=yes("Relayout", "the attempt before saves and leaves"),
            Admitted=no("Relayout", "waits for the attempt before"),
            Running=no("Relayout"),
        )
    job = case.job
    if job is None:
        return _start(case)
    if job.finished or job.deleting:
        return case
    return _adjust(case, job)


def _start(case: Case) -> Case:
    """Launch, once there is room; what has been started once is put back without asking again."""
    attempt, queued = case.journal.attempt, case.world.queue is not None
    if attempt is None:
        return case
    if case.plan.spec.suspend:
        return case.then(Admitted=no("Suspended"), Running=no("Suspended"))
    launch = launch_of(case, attempt=attempt.number)
    if attempt.started is None and not queued:
        free = case.world.inventory.free(wish_of(case.plan), launch.gpu_type, launch.gpus_per_pod)
        if free < launch.layout.gpus:
            message = f"needs {launch.layout.gpus} x {launch.gpu_type}, {free} are free"
            waits = no("WaitingForGPUs", message)
            return case.then(
                Requeue(after_s=case.world.settings.retry_s), Admitted=waits, Running=no("NotAdmitted")
            )
    started = attempt if attempt.started else replace(attempt, started=case.world.now)
    missing = _missing(case, launch)
    case = replace(case, journal=replace(case.journal, attempt=started))
    admitted = no("Queued", "waits for its queue") if queued else yes("Admitted")
    if case.world.refusal:
        admitted = no("Refused", case.world.refusal)
    return case.then(
        *missing,
        Apply(child=isolation.rendezvous_key(launch)),
        Apply(child=objects.job(launch)),
        Admitted=admitted,
        Running=no("Starting", f"attempt {attempt.number} starts"),
    )


def _missing(case: Case, launch: Launch) -> list[Apply]:
    """The plan's other objects that are not there."""
    children = (
        *isolation.network_policies(launch),  # first: no pod is reachable before they hold
        objects.settings_map(launch),
        objects.service(launch),
        objects.rendezvous(launch),
    )
    return [Apply(child=child) for child in children if child and _support(child) not in case.world.supports]


def _adjust(case: Case, job: Job) -> Case:
    """Bring a live Job to the wished size, and stop or continue it; its workers' store must be there."""
    launch = launch_of(case, attempt=job.attempt)
    queued = case.world.queue is not None
    wished, patch = launch.pods, {}
    missing = _missing(case, launch)
    if job.parallelism != wished and job.elastic:
        patch = {"parallelism": wished, "completions": wished}
    if job.suspended != case.plan.spec.suspend and not queued:
        patch["suspend"] = case.plan.spec.suspend
    case = case.then(*missing)
    if patch:
        case = case.then(PatchJob(name=job.name, spec=patch))
    return _ask_queue(case, job) if queued else case


def _ask_queue(case: Case, job: Job) -> Case:
    """A queued Job is Kueue's to stop and to start; it is asked to, and looked at again while it waits."""
    asked = case.plan.spec.suspend
    held = [each for each in case.world.workloads if not each.finished]
    case = case.then(
        *(PatchWorkload(name=each.name, active=not asked) for each in held if each.active == asked)
    )
    if _overlooked(case, job, held):
        case = case.then(PatchJob(name=job.name, spec={}, notes={names.NUDGED: stamp(case.world.now)}))
    if not asked and (job.suspended or job.ready < job.parallelism):
        since = moment(case.said("Admitted").get("lastTransitionTime")) or case.world.now
        waited_s = (case.world.now - since).total_seconds()
        return case.then(Requeue(after_s=min(max(_QUEUE_SOON_S, waited_s / 4), case.world.settings.retry_s)))
    return case.then(Requeue(after_s=_QUEUE_SOON_S)) if asked and not job.suspended else case


def _overlooked(case: Case, job: Job, held: Sequence[Workload]) -> bool:
    """Whether Kueue admitted the Job and forgot a pod of it, which any change of the Job makes it look at.

    Kueue 0.15 and 0.16 let pods of elastic Jobs go when the Job changes, and miss those that come just after
    (kubernetes-sigs/kueue issue 9879).
    """

    def long_ago(moment: dt.datetime | None) -> bool:
        return moment is None or (case.world.now - moment).total_seconds() >= _OVERLOOKED_S

    gated = [pod for pod in case.world.pods if pod.gated and pod.attempt == job.attempt]
    admitted = bool(held) and all(each.active and each.admitted for each in held)
    return admitted and long_ago(job.nudged) and any(long_ago(pod.created) for pod in gated)


def _free_dead(case: Case) -> Case:
    """Pods that are stuck on a dead node are removed, so that the Job replaces them elsewhere.

    The node has then been silent for longer than the rendezvous waits for an agent, so the others have gone
    on (or wait) without them; should one live on unseen, it can only ever be one more member of that world.
    """
    world = case.world
    for pod in world.pods:
        if pod.deletes_by is None or pod.phase in {"Succeeded", "Failed"} or not pod.node:
            continue
        if world.inventory.dead(pod.node, now=world.now, after_s=world.settings.dead_node_s):
            message = f"pod {pod.name} was stuck on dead node {pod.node}"
            case = case.then(
                Delete(kind="Pod", name=pod.name, uid=pod.uid, force=True),
                Emit(reason="DeadNode", message=message, warning=True),
            )
        else:
            case = case.then(Requeue(after_s=5))
    return case


def _clean(case: Case) -> Case:
    """After the end only the Job stays, with its logs, until its time is over."""
    supports = sorted(support.partition("/")[::2] for support in case.world.supports)
    left = tuple(Delete(kind="Job", name=job.name) for job in case.older if not job.deleting)
    ended = tuple(Delete(kind=kind, name=name) for kind, name in supports if kind in _ENDING)
    return case.then(*ended, *left)


def _finish(case: Case) -> tuple[Action, ...]:
    """The actions in order, the status first where it changes, events last."""
    world = case.world
    case = run_conditions(case)
    status = status_document(case)
    status["conditions"] = updated(
        world.status.get("conditions", ()), case.conditions, generation=case.generation, now=world.now
    )
    return _ordered(world, status, case.actions)


def _ordered(world: Snapshot, status: Mapping[str, Any], actions: tuple[Action, ...]) -> tuple[Action, ...]:
    before, after = reason_of(world.status, "Ready"), reason_of(status, "Ready")
    told = [action for action in actions if isinstance(action, Emit)]
    if before != after and after not in _QUIET:
        message = next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
        told.append(Emit(reason=after, message=message or after, warning=after in _WARNINGS))
    changed = (PatchStatus(status=status),) if status != world.status else ()
    rest = tuple(action for action in actions if not isinstance(action, Emit))
    return (*changed, *rest, *told)


def _refuse(world: Snapshot, message: str) -> tuple[Action, ...]:
    """A plan that cannot be: it says so, and whatever runs is left alone."""
    conditions = {"Accepted": no("Invalid", message), "Sized": no("Invalid", message)}
    if not any(job.lives for job in world.jobs):
        conditions |= {"Ready": no("Invalid", message)}
    generation = int(world.plan["metadata"].get("generation", 1))
    status = dict(world.status) | {"observedGeneration": generation}
    status["conditions"] = updated(
        world.status.get("conditions", ()), conditions, generation=generation, now=world.now
    )
    return _ordered(world, status, ())


def _ended(case: Case) -> bool:
    """Whether the current attempt is over; its Job may be gone since."""
    job = case.job
    if job is not None and job.finished:
        return True
    return job is None and (holds(case.world.status, "Complete") or holds(case.world.status, "Failed"))


def _limit(world: Snapshot) -> int | None:
    """The most GPUs that this plan may ever hold, by the namespace's quotas and its queue's."""
    limits = (world.quota_gpus, world.queue.gpus if world.queue else None)
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
