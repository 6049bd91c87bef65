"""One reconcile: a snapshot in, actions out. Pure.

Level-triggered: the result depends on the current state only, not on the events that led to it. Actions are
executed in order. If one is lost, the next reconcile asks for it again. The status is written first: it holds
everything that later reconciles need.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.state import ConditionType, State
from rightsizer_engine.errors import InputError, UnsupportedError
from rightsizer_operator.reconcile.attempts import adopted, attempted, running_of
from rightsizer_operator.reconcile.failures import recorded
from rightsizer_operator.reconcile.idle import idle_checked
from rightsizer_operator.reconcile.lifetime import clocked, expired
from rightsizer_operator.reconcile.parsed_plan import parsed_plan
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.reconcile.resize import advised, fallen_back, proven
from rightsizer_operator.reconcile.run import clean_up, run
from rightsizer_operator.reconcile.size import decide
from rightsizer_operator.reconcile.sizing_response import NotSizedYetError, cached_response
from rightsizer_operator.reconcile.sizing_response import Size as Sizes
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.reconcile.status import run_conditions, status_document
from rightsizer_operator.values.actions import Action, EmitEvent, PatchStatus, Requeue, SearchSize
from rightsizer_operator.values.conditions import (
    PlanCondition,
    conditions_of,
    merge_conditions,
    no,
    state_of,
    unknown,
    yes,
)
from rightsizer_operator.values.metadata import generation_of, is_being_deleted
from rightsizer_operator.values.pods import mount_paths
from rightsizer_operator.values.sized import SizedPlan
from rightsizer_operator.values.snapshot import Snapshot

_MOST_FAULT = 500  # characters


def reconcile(snapshot: Snapshot, *, size: Sizes = cached_response) -> tuple[Action, ...]:
    """The actions for one plan; empty when nothing has to change. `size` responds to size requests."""
    if is_being_deleted(snapshot.plan):
        return ()  # the garbage collector deletes the children; workers save on SIGTERM
    try:
        state = ReconcileState(
            snapshot=snapshot,
            resolved=parsed_plan(snapshot.plan),
            persisted=PersistedStatus.of(snapshot.status).with_jobs(snapshot.jobs),
            size=size,
        )
        state = recorded(adopted(state))
        try:
            return _finish(_decided(state))
        except NotSizedYetError as missing:
            return _while_sizing(state, missing)
    except (InputError, UnsupportedError) as error:
        return _reject(snapshot, str(error))


def _decided(state: ReconcileState) -> ReconcileState:
    """The size, and the children that follow from it."""
    if _is_trained(state):
        persisted = replace(state.persisted, generation=state.generation)
        return expired(clean_up(replace(state, persisted=persisted)))
    if state.persisted.generation == state.generation:
        state = fallen_back(proven(state))
        if _has_ended(state):
            return expired(clean_up(state))
    return run(clocked(state if state.resized else idle_checked(advised(_size(state)))))


def _while_sizing(state: ReconcileState, missing: NotSizedYetError) -> tuple[Action, ...]:
    """Request the size. A plan that runs goes on at its present size; one that waits for long says so."""
    state = state.then(SearchSize(size_request=missing.size_request))
    if state.job is not None:
        return _finish(run(clocked(state)))
    if missing.long and state.persisted.sized is None:
        return _finish(run(state.then(Sized=unknown(State.SIZING, "searching for a size takes its turn"))))
    return state.actions


def _size(state: ReconcileState) -> ReconcileState:
    """Size the plan if its spec is new or it has no size. A change of the launch starts a new attempt."""
    snapshot, persisted = state.snapshot, state.persisted
    spec_changed = persisted.generation < state.generation
    if not spec_changed and persisted.sized is not None and persisted.holds(ConditionType.SIZED):
        return state
    if not state.plan.spec.launch.command or not state.plan.spec.launch.image:
        missing = "command" if not state.plan.spec.launch.command else "image"
        raise InputError(f"spec.launch.{missing}", value=None, remedy="is required to run on Kubernetes")
    decision = decide(
        state.resolved,
        inventory=snapshot.inventory,
        now=snapshot.sizing_since or snapshot.now,
        created=state.created,
        running=running_of(state),
        quota_gpus=_gpu_limit(snapshot),
        inter_gbps=snapshot.settings.inter_node_gbps,
        size=state.size,
    )
    persisted = replace(persisted, generation=state.generation)
    if decision.sized is None:
        accepted = yes("Valid") if decision.possible else no(decision.reason, decision.message)
        sized = no(decision.reason, decision.message)
        state = replace(state, persisted=persisted).then(Accepted=accepted, Sized=sized)
        return state if persisted.sized else state.then(Requeue(after_s=snapshot.settings.retry_s))
    state = attempted(replace(state, persisted=persisted), decision.sized)
    message = decision.message + _borrowing_note(snapshot, decision.sized)
    return state.then(
        EmitEvent(reason=ConditionType.SIZED, message=message),
        Accepted=yes("Valid", _checkpoint_warning(state.plan)),
        Sized=yes(ConditionType.SIZED, message),
    )


def _finish(state: ReconcileState) -> tuple[Action, ...]:
    """The actions of a state, with the new status."""
    accepted = state.persisted.condition(ConditionType.ACCEPTED)
    if ConditionType.ACCEPTED not in state.conditions and accepted.reason == State.FAULT:
        state = state.then(Accepted=yes("Valid"))
    state = run_conditions(state)
    return _ordered(state.snapshot, status_document(state), state.actions)


def _ordered(
    snapshot: Snapshot, status: Mapping[str, Any], actions: tuple[Action, ...]
) -> tuple[Action, ...]:
    """The status first if it changed, then the other actions, the earliest Requeue, then Events."""
    before, after = state_of(snapshot.status), state_of(status)
    events = [action for action in actions if isinstance(action, EmitEvent)]
    if before != after and not after.is_quiet:
        message = next(c["message"] for c in status["conditions"] if c["type"] == ConditionType.READY)
        events.append(EmitEvent(reason=after, message=message or after, warning=after.warns))
    changed = (PatchStatus(status=status),) if status != snapshot.status else ()
    timers = [action for action in actions if isinstance(action, Requeue)]
    soonest = (min(timers, key=lambda timer: timer.after_s),) if timers else ()  # a plan has one timer
    rest = tuple(action for action in actions if not isinstance(action, EmitEvent | Requeue))
    return (*changed, *rest, *soonest, *events)


def _reject(snapshot: Snapshot, message: str) -> tuple[Action, ...]:
    """Report an invalid plan in its conditions. A Job that runs keeps running."""
    invalid = no(State.INVALID, message)
    status = _with_conditions(snapshot, invalid, ConditionType.ACCEPTED, ConditionType.SIZED)
    return _ordered(snapshot, status | {"observedGeneration": generation_of(snapshot.plan)}, ())


def faulted(snapshot: Snapshot, error: Exception) -> tuple[Action, ...]:
    """Report a fault of the operator in a plan. It is tried again later; a Job that runs goes on."""
    message = f"a fault in the operator, which tries again: {type(error).__name__}: {error}"[:_MOST_FAULT]
    status = _with_conditions(snapshot, unknown(State.FAULT, message), ConditionType.ACCEPTED)
    if status == snapshot.status:
        return ()
    event = EmitEvent(reason=State.FAULT, message=message, warning=True)
    return PatchStatus(status=status), event


def _with_conditions(snapshot: Snapshot, condition: PlanCondition, *kinds: ConditionType) -> dict[str, Any]:
    """The status with this condition for these types, and for Ready unless a Job runs."""
    new = dict.fromkeys(kinds, condition)
    if not any(job.is_active for job in snapshot.jobs):
        new[ConditionType.READY] = condition
    old, generation = conditions_of(snapshot.status), generation_of(snapshot.plan)
    merged = merge_conditions(old, new, generation=generation, now=snapshot.now)
    return {**snapshot.status, "conditions": merged}


def _has_ended(state: ReconcileState) -> bool:
    """Whether the current attempt has finished. Its Job may have been deleted since."""
    job = state.job
    if job is not None and job.finished:
        return True
    return job is None and state.persisted.has_ended


def _is_trained(state: ReconcileState) -> bool:
    """Whether the training is complete. Nothing but more tokens to train starts it again."""
    job, sized = state.job, state.persisted.sized
    finished = job.finished == State.COMPLETE if job else state.persisted.holds(ConditionType.COMPLETE)
    if not finished or sized is None:
        return False
    step_tokens = sized.batch_sequences * state.resolved.workload.sequence_tokens
    trained = max(sized.steps * step_tokens, state.persisted.observed.tokens or 0.0)
    return bool(state.target_tokens <= trained + step_tokens)


def _gpu_limit(snapshot: Snapshot) -> int | None:
    """The most GPUs that the namespace's quotas and the plan's queue allow; None without a limit."""
    limits = (snapshot.quota_gpus, snapshot.queue.gpus if snapshot.queue else None)
    return min((limit for limit in limits if limit is not None), default=None)


def _borrowing_note(snapshot: Snapshot, sized: SizedPlan) -> str:
    """That a staged plan grows beyond its queue's own quota, on GPUs that others may reclaim."""
    reserve, own = sized.reserve_gpus, snapshot.queue.nominal_gpus if snapshot.queue else None
    if own is None or reserve <= own:
        return ""
    return f"; beyond {own} GPUs, its queue's own quota, a reserve of {reserve} is borrowed"


def _checkpoint_warning(plan: TrainingPlan) -> str:
    """A message if failures would lose the training's progress; empty otherwise."""
    checkpoint, template = plan.spec.launch.checkpoint, plan.spec.launch.pod_template
    if checkpoint is None:
        return "spec.launch.checkpoint is not set: any failure restarts training from the beginning"
    mounts = mount_paths((template.spec if template else None) or {})
    mounted = any(f"{checkpoint.path}/".startswith(mount.rstrip("/") + "/") for mount in mounts)
    return (
        "" if mounted else f"no volume is mounted at {checkpoint.path}: checkpoints are lost with their pods"
    )
