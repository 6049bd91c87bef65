"""Plans whose GPUs are idle: the condition Idle, and the suspension that `elasticity.whenIdle` may ask for.

The condition's lastTransitionTime is the beginning of the evidence. Whatever interrupts the evidence changes
the condition: progress, a phase in which GPUs may idle, missing measurements, a worker that is not ready,
time without an operator. Pure.
"""

from rightsizer_api.quantities import format_time, later
from rightsizer_api.spec.resources import WhenIdle
from rightsizer_api.state import ConditionType, State
from rightsizer_engine.domain.reading import Phase
from rightsizer_engine.resize.types import Action, Bottleneck, Decision, Mode
from rightsizer_engine.units import parse_duration_s
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.actions import EmitEvent, PatchPlan
from rightsizer_operator.values.conditions import PlanCondition, no, unknown, yes

_SUSPENDED = State.SUSPENDED
_MISSED = 3  # writes of the measured progress that may be missing


def idle_checked(state: ReconcileState) -> ReconcileState:
    """The state with the condition Idle; suspended if the plan requests it and its grace time is over."""
    known, decision = state.persisted.condition(ConditionType.IDLE), state.snapshot.decision
    interrupted = _interruption(state)
    if interrupted is not None:
        keeps = state.plan.spec.suspend and known.reason == _SUSPENDED
        return state.then(Idle=interrupted) if known.status and not keeps else state
    if decision is None:
        return state
    if decision.action is Action.FLAG and decision.bottleneck is Bottleneck.IDLE:
        return _idle(state, decision)
    if decision.bottleneck is Bottleneck.UNKNOWN:
        return state.then(Idle=unknown("NotMeasured", decision.reason))
    return state.then(Idle=no("InUse"))


def suspended_because(state: ReconcileState) -> str:
    """Why the operator suspended the plan; empty if somebody else did."""
    known = state.persisted.condition(ConditionType.IDLE)
    return known.message if known.reason == _SUSPENDED else ""


def _interruption(state: ReconcileState) -> PlanCondition | None:
    """The end of the evidence: no running workers, or no measurements for a while."""
    job, snapshot = state.job, state.snapshot
    if state.plan.spec.suspend or job is None or not job.is_active or job.ready < job.parallelism:
        return no("NotRunning")
    if state.persisted.holds(ConditionType.RESIZING):
        return no(ConditionType.RESIZING)
    last = state.persisted.observed.updated_at
    if last is None or (snapshot.now - last).total_seconds() > _MISSED * snapshot.settings.observe_s:
        return unknown("NotMeasured", "the workers' metrics were not read for a while")
    return None


def _idle(state: ReconcileState, decision: Decision) -> ReconcileState:
    """Idle by the newest decision: warn, or suspend after the grace time."""
    elasticity, now = state.plan.spec.elasticity, state.snapshot.now
    if elasticity.when_idle is not WhenIdle.SUSPEND or not state.plan.spec.launch.resumes:
        return state.then(Idle=yes("NotUsed", decision.reason))
    if state.snapshot.settings.cap(state.plan.metadata.namespace or "") is not Mode.AUTO:
        return state.then(Idle=yes("NotUsed", f"{decision.reason}; the site does not let it be suspended"))
    known = state.persisted.condition(ConditionType.IDLE)
    due = later((known.since if known.holds else None) or now, parse_duration_s(elasticity.idle_grace))
    message = f"{decision.reason}; suspended at {format_time(due)} if it stays idle (elasticity.whenIdle)"
    progress = state.snapshot.progress
    if now >= due and progress is not None and progress.phase == Phase.TRAINING:
        return _suspended(state, decision)
    state = state.then(Idle=yes("NotUsed", message))
    return (
        state
        if known.holds
        else state.then(EmitEvent(reason=ConditionType.IDLE, message=message, warning=True))
    )


def _suspended(state: ReconcileState, decision: Decision) -> ReconcileState:
    """Suspended by the operator, with the evidence. Only a user resumes it."""
    name, grace = state.plan.metadata.name, state.plan.spec.elasticity.idle_grace
    evidence = "; ".join(decision.evidence[:2])
    message = f"{decision.reason}, for {grace} ({evidence}); kubectl rightsizer resume {name} continues it"
    uid = state.snapshot.plan["metadata"]["uid"]
    return state.then(
        PatchPlan(uid=uid, spec={"suspend": True}),
        EmitEvent(reason="IdleSuspended", message=message, warning=True),
        Idle=yes(_SUSPENDED, message),
    )
