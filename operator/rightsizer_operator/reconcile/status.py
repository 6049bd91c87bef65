"""The status that people read: conditions, deadline, ETA, what was measured. Pure."""

import datetime as dt
from typing import Any

from rightsizer.units import format_duration, parse_duration_s
from rightsizer_api import sizing
from rightsizer_api.quantities import format_time, parse_time
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values import names
from rightsizer_operator.values.conditions import Condition, is_true, no, unknown, yes
from rightsizer_operator.values.kueue import waiting_words
from rightsizer_operator.values.snapshot import AttemptJob, Pod

__all__ = ["run_conditions", "status_document"]

_SILENT_TIMES = 3  # so many renewals of what was measured may fail before nothing is measured


def run_conditions(state: ReconcileState) -> ReconcileState:
    """The case with every condition that its Job decides."""
    job = state.job
    if job is not None and job.finished:
        state = _ended(state, job)
    elif job is not None:
        state = _live(state, job)
    elif not _over(state):
        state = state.then(Complete=no("NotFinished"), Failed=no("NotFinished"))
    at_risk = _at_risk(state)
    measured = _measured(state)
    state = state.then(DeadlineAtRisk=at_risk, MetricsAvailable=measured)
    if not state.snapshot.status.get("conditions"):
        state = state.then(OverProvisioned=unknown("NotMeasured"))
    if "Resizing" not in state.conditions:
        state = state.then(Resizing=_resizing(state))
    return state.then(Ready=_ready(state))


def status_document(state: ReconcileState) -> dict[str, Any]:
    """The status without its conditions."""
    persisted, snapshot = state.persisted, state.snapshot
    status: dict[str, Any] = {
        "observedGeneration": persisted.generation,
        "selector": f"{names.LABEL_PLAN}={state.plan.metadata.name},{names.LABEL_ROLE}={names.WORKER}",
    }
    if persisted.report is not None:
        status["sizing"] = dict(persisted.report)
    if persisted.attempt is not None:
        status["attempt"] = persisted.attempt.document()
    if persisted.resizes:
        status["resizes"] = [dict(entry) for entry in persisted.resizes]
    due, eta = _deadline(state), _eta(state)
    status |= {"deadline": format_time(due)} if due else {}
    status |= {"eta": format_time(eta)} if eta else {}
    observed = _observed(state)
    if observed:
        status["observed"] = observed
    advised = state.recommendation or snapshot.status.get("recommendation")
    if advised:
        status["recommendation"] = dict(advised)
    return status


def _over(state: ReconcileState) -> bool:
    """Whether the current attempt ended although its Job is gone."""
    ended = is_true(state.snapshot.status, "Complete") or is_true(state.snapshot.status, "Failed")
    return ended and state.persisted.attempt is not None and state.persisted.attempt.started is not None


def _ended(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    over = no("Finished")
    if job.finished == "Complete":
        return state.then(
            Complete=yes("Trained", "every token is trained on"),
            Failed=no("Trained"),
            Running=over,
            Resizing=over,
        )
    words = _last_words(state.snapshot.pods) or state.condition("Failed").get("message", "") or job.message
    return state.then(
        Failed=yes(job.reason or "Failed", words), Complete=no("Failed"), Running=over, Resizing=over
    )


def _live(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    state = state.then(Complete=no("NotFinished"), Failed=no("NotFinished"))
    if job.suspended and state.plan.spec.suspend:
        return state.then(Admitted=no("Suspended"), Running=no("Suspended", "saved and stopped on request"))
    if job.suspended:
        words = waiting_words(state.snapshot.workloads)
        return state.then(Admitted=no("Queued", words), Running=no("NotAdmitted"))
    wished = job.parallelism
    words = f"{job.ready} of {wished} workers"
    if job.ready >= wished:
        running = yes("AllWorkers", words)
    elif job.succeeded or any(
        p.phase == "Succeeded" and p.attempt == job.attempt for p in state.snapshot.pods
    ):
        running = yes("Finishing", words)
    elif job.ready:
        running = yes("SomeWorkers", words) if job.elastic else no("WaitingForWorkers", words)
    else:
        running = no("NoWorkers", words)
    return state.then(Admitted=yes("Admitted"), Running=running)


def _resizing(state: ReconcileState) -> Condition:
    job, attempt = state.job, state.persisted.attempt
    if job is None or attempt is None or job.finished or job.suspended:
        return no("NotResizing")
    wished = attempt.gpus // job.gpus_per_pod if job.gpus_per_pod else job.parallelism
    changes = job.elastic and wished != job.parallelism
    if changes or (is_true(state.snapshot.status, "Resizing") and job.ready != wished):
        words = f"{job.ready} of {wished} workers"
        waits = any(
            each.replaces and not each.admitted for each in state.snapshot.workloads if not each.finished
        )
        return yes("InPlace", f"{words}; {waiting_words(state.snapshot.workloads)}" if waits else words)
    return no("NotResizing")


def _ready(state: ReconcileState) -> Condition:
    """The plan's state: an ending if there was one (its Job may be gone since), else what it is doing."""
    for kind, ready in (("Failed", no), ("Complete", yes)):
        now, said = state.conditions.get(kind), state.condition(kind)
        if now is not None and now.status == "True":
            return ready(kind, now.message)
        if now is None and said.get("status") == "True":
            return ready(kind, said.get("message", ""))
    return _state(state)


def _state(state: ReconcileState) -> Condition:
    found = state.conditions
    sized, admitted, running = found.get("Sized"), found.get("Admitted"), found.get("Running")
    if state.persisted.report is None and sized is not None:
        return no(sized.reason, sized.message)
    if found["Resizing"].status == "True":
        return no("Resizing", found["Resizing"].message)
    if admitted is not None and admitted.status != "True":
        return no(admitted.reason, admitted.message)
    words = running.message if running else ""
    if running is not None and running.status == "True":
        return yes("Finishing" if running.reason == "Finishing" else "Running", words)
    if is_true(state.snapshot.status, "Running") or state.condition("Ready").get("reason") == "Recovering":
        return no("Recovering", f"{words} are left; those that come back go on from the last checkpoint")
    return no("Starting", words)


def _at_risk(state: ReconcileState) -> Condition:
    due, eta = _deadline(state), _eta(state)
    if due is None:
        return no("NoDeadline")
    if state.job is not None and state.job.finished:
        late = state.job.finished_at is not None and state.job.finished_at > due
        return yes("Late", "it ended after its deadline") if late else no("Finished")
    if eta is None:
        return unknown("NoEstimate")
    if eta <= due:
        return no("OnTime")
    return yes("Late", f"expected {format_duration((eta - due).total_seconds())} after the deadline")


def _measured(state: ReconcileState) -> Condition:
    """Whether workers answer: for a while the last answer stands, as after a new start of the operator."""
    if state.snapshot.progress is not None and state.snapshot.uncounted:
        return no("NoCounters", state.snapshot.uncounted)
    if state.snapshot.progress is not None:
        return yes("WorkersAnswer")
    last, job = parse_time(state.persisted.observed.get("updatedAt")), state.job
    if last is None:
        return unknown("NotMeasured")
    if job is None or not job.is_active or not job.ready:
        return unknown("NotRunning", "no worker runs")
    if (state.snapshot.now - last).total_seconds() > _SILENT_TIMES * state.snapshot.settings.observe_s:
        return no("NoAnswer", f"no worker has answered since {format_time(last)}")
    kept = state.condition("MetricsAvailable").get("status") == "True"
    return yes("WorkersAnswer") if kept else unknown("NoAnswer", "no worker has answered yet")


def _deadline(state: ReconcileState) -> dt.datetime | None:
    asked = state.plan.spec.deadline
    if asked is None:
        return None
    if asked.finish_by is not None:
        return asked.finish_by
    return state.created + dt.timedelta(seconds=parse_duration_s(str(asked.finish_within)))


def _eta(state: ReconcileState) -> dt.datetime | None:
    """By the measured pace where there is one, else by the prediction from the attempt's start."""
    persisted, report = state.persisted, state.persisted.report
    if state.job is not None and state.job.finished == "Complete":
        return state.job.finished_at
    if report is None or state.plan.spec.suspend:
        return None
    if state.snapshot.status.get("eta") and state.job is None and is_true(state.snapshot.status, "Complete"):
        return parse_time(state.snapshot.status["eta"])
    observed = _observed(state)
    rate, at = observed.get("tokensPerSecond"), parse_time(observed.get("updatedAt"))
    if rate and at:
        left = max(0.0, _target(state) - observed.get("tokens", 0.0))
        return at + dt.timedelta(seconds=left / rate)
    began = persisted.attempt.started if persisted.attempt else None
    return began + dt.timedelta(seconds=report["finishSeconds"]) if began else None


def _target(state: ReconcileState) -> float:
    return sizing.resolve(state.plan).workload.tokens


def _observed(state: ReconcileState) -> dict[str, Any]:
    """What was measured; renewed at most once in a while, so that a steady run costs few writes."""
    known, progress = dict(state.persisted.observed), state.snapshot.progress
    last = parse_time(known.get("updatedAt"))
    recent = (
        last is not None and (state.snapshot.now - last).total_seconds() < state.snapshot.settings.observe_s
    )
    if progress is None or recent:
        return known
    total = _target(state)
    known |= {
        "step": progress.step,
        "tokens": progress.tokens,
        "progress": min(1.0, progress.tokens / total),
        "tokensPerSecond": progress.tokens_per_s,
        "restarts": progress.restarts,
        "updatedAt": format_time(state.snapshot.now),
    }
    if progress.loss is not None:
        known["loss"] = progress.loss
    if progress.checkpoint_at is not None:
        known["lastCheckpointTime"] = format_time(progress.checkpoint_at)
    return known


def _last_words(pods: tuple[Pod, ...]) -> str:
    """What the first worker that failed had to say."""
    failed = [pod for pod in pods if pod.exit_code and pod.finished_at and pod.message]
    first = min(failed, key=lambda pod: (pod.exit_code != 78, pod.finished_at), default=None)
    return f"{first.message} (exit code {first.exit_code}, pod {first.name})" if first else ""
