"""Kueue owns the suspension of queued Jobs: activate their Workloads and work around a missed pod. Pure."""

import datetime as dt
from collections.abc import Sequence

from rightsizer_api.quantities import format_time
from rightsizer_api.state import ConditionType
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values import names
from rightsizer_operator.values.actions import PatchJob, PatchWorkload, Requeue
from rightsizer_operator.values.kueue import KueueWorkload
from rightsizer_operator.values.snapshot import AttemptJob

_FIRST_POLL_S = 2.0
_UNGATE_TIMEOUT_S = 10.0
"""Kueue ungates the pods of an admitted Job in well below 1 s; after this long it has missed one."""


def reconcile_workloads(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    """Suspend or resume a queued Job through its Workloads; poll them while the Job waits."""
    suspend = state.plan.spec.suspend
    workloads = [workload for workload in state.snapshot.workloads if not workload.finished]
    to_patch = [workload for workload in workloads if workload.active == suspend]
    state = state.then(*(PatchWorkload(name=w.name, active=not suspend) for w in to_patch))
    if _has_missed_pod(state, job, workloads):
        nudge = {names.NUDGED: format_time(state.snapshot.now)}
        state = state.then(PatchJob(name=job.name, spec={}, annotations=nudge))
    if not suspend and (job.suspended or job.ready < job.parallelism):
        return state.then(Requeue(after_s=poll_s(state)))
    return state.then(Requeue(after_s=_FIRST_POLL_S)) if suspend and not job.suspended else state


def poll_s(state: ReconcileState) -> float:
    """Seconds until the next look at a waiting Job's pods and Workloads: less often, the longer it waits."""
    since = state.persisted.condition(ConditionType.ADMITTED).since or state.snapshot.now
    waited_s = (state.snapshot.now - since).total_seconds()
    return min(max(_FIRST_POLL_S, waited_s / 4), state.snapshot.settings.retry_s)


def _has_missed_pod(state: ReconcileState, job: AttemptJob, workloads: Sequence[KueueWorkload]) -> bool:
    """Whether Kueue admitted the Job but left a pod gated. Any change of the Job makes Kueue look again.

    Kueue 0.15 and 0.16 ungate the pods of an elastic Job when the Job changes, and miss pods created just
    after (kubernetes-sigs/kueue issue 9879).
    """

    def timed_out(since: dt.datetime | None) -> bool:
        return since is None or (state.snapshot.now - since).total_seconds() >= _UNGATE_TIMEOUT_S

    gated = [pod for pod in state.snapshot.pods if pod.gated and pod.attempt == job.attempt]
    admitted = bool(workloads) and all(w.active and w.admitted for w in workloads)
    return admitted and timed_out(job.nudged_at) and any(timed_out(pod.created) for pod in gated)
