"""The status that people read: conditions, deadline, ETA, what was measured. Pure."""

import datetime as dt
from typing import Any

from rightsizer.units import format_duration, parse_duration_s
from rightsizer_api import sizing
from rightsizer_operator.reconcile.state import Case
from rightsizer_operator.values import names
from rightsizer_operator.values.conditions import Condition, holds, no, unknown, yes
from rightsizer_operator.values.kueue import waiting_words
from rightsizer_operator.values.snapshot import Job, Pod, moment, stamp

__all__ = ["run_conditions", "status_document"]

_SILENT_TIMES = 3  # so many renewals of what was measured may fail before nothing is measured


def run_conditions(case: Case) -> Case:
    """The case with every condition that its Job decides."""
    job = case.job
    if job is not None and job.finished:
        case = _ended(case, job)
    elif job is not None:
        case = _live(case, job)
    elif not _over(case):
        case = case.then(Complete=no("NotFinished"), Failed=no("NotFinished"))
    at_risk = _at_risk(case)
    measured = _measured(case)
    case = case.then(DeadlineAtRisk=at_risk, MetricsAvailable=measured)
    if not case.world.status.get("conditions"):
        case = case.then(OverProvisioned=unknown("NotMeasured"))
    if "Resizing" not in case.conditions:
        case = case.then(Resizing=_resizing(case))
    return case.then(Ready=_ready(case))


def status_document(case: Case) -> dict[str, Any]:
    """The status without its conditions."""
    journal, world = case.journal, case.world
    status: dict[str, Any] = {
        "observedGeneration": journal.generation,
        "selector": f"{names.LABEL_PLAN}={case.plan.metadata.name},{names.LABEL_ROLE}={names.WORKER}",
    }
    if journal.report is not None:
        status["sizing"] = dict(journal.report)
    if journal.attempt is not None:
        status["attempt"] = journal.attempt.document()
    if journal.resizes:
        status["resizes"] = [dict(entry) for entry in journal.resizes]
    due, eta = _deadline(case), _eta(case)
    status |= {"deadline": stamp(due)} if due else {}
    status |= {"eta": stamp(eta)} if eta else {}
    observed = _observed(case)
    if observed:
        status["observed"] = observed
    advised = case.recommendation or world.status.get("recommendation")
    if advised:
        status["recommendation"] = dict(advised)
    return status


def _over(case: Case) -> bool:
    """Whether the current attempt ended although its Job is gone."""
    ended = holds(case.world.status, "Complete") or holds(case.world.status, "Failed")
    return ended and case.journal.attempt is not None and case.journal.attempt.started is not None


def _ended(case: Case, job: Job) -> Case:
    over = no("Finished")
    if job.finished == "Complete":
        return case.then(
            Complete=yes("Trained", "every token is trained on"),
            Failed=no("Trained"),
            Running=over,
            Resizing=over,
        )
    words = _last_words(case.world.pods) or case.said("Failed").get("message", "") or job.message
    return case.then(
        Failed=yes(job.reason or "Failed", words), Complete=no("Failed"), Running=over, Resizing=over
    )


def _live(case: Case, job: Job) -> Case:
    case = case.then(Complete=no("NotFinished"), Failed=no("NotFinished"))
    if job.suspended and case.plan.spec.suspend:
        return case.then(Admitted=no("Suspended"), Running=no("Suspended", "saved and stopped on request"))
    if job.suspended:
        words = waiting_words(case.world.workloads)
        return case.then(Admitted=no("Queued", words), Running=no("NotAdmitted"))
    wished = job.parallelism
    words = f"{job.ready} of {wished} workers"
    if job.ready >= wished:
        running = yes("AllWorkers", words)
    elif job.succeeded or any(p.phase == "Succeeded" and p.attempt == job.attempt for p in case.world.pods):
        running = yes("Finishing", words)
    elif job.ready:
        running = yes("SomeWorkers", words) if job.elastic else no("WaitingForWorkers", words)
    else:
        running = no("NoWorkers", words)
    return case.then(Admitted=yes("Admitted"), Running=running)


def _resizing(case: Case) -> Condition:
    job, attempt = case.job, case.journal.attempt
    if job is None or attempt is None or job.finished or job.suspended:
        return no("NotResizing")
    wished = attempt.gpus // job.gpus_per_pod if job.gpus_per_pod else job.parallelism
    changes = job.elastic and wished != job.parallelism
    if changes or (holds(case.world.status, "Resizing") and job.ready != wished):
        words = f"{job.ready} of {wished} workers"
        waits = any(each.replaces and not each.admitted for each in case.world.workloads if not each.finished)
        return yes("InPlace", f"{words}; {waiting_words(case.world.workloads)}" if waits else words)
    return no("NotResizing")


def _ready(case: Case) -> Condition:
    """The plan's state: an ending if there was one (its Job may be gone since), else what it is doing."""
    for kind, ready in (("Failed", no), ("Complete", yes)):
        now, said = case.conditions.get(kind), case.said(kind)
        if now is not None and now.status == "True":
            return ready(kind, now.message)
        if now is None and said.get("status") == "True":
            return ready(kind, said.get("message", ""))
    return _state(case)


def _state(case: Case) -> Condition:
    found = case.conditions
    sized, admitted, running = found.get("Sized"), found.get("Admitted"), found.get("Running")
    if case.journal.report is None and sized is not None:
        return no(sized.reason, sized.message)
    if found["Resizing"].status == "True":
        return no("Resizing", found["Resizing"].message)
    if admitted is not None and admitted.status != "True":
        return no(admitted.reason, admitted.message)
    words = running.message if running else ""
    if running is not None and running.status == "True":
        return yes("Finishing" if running.reason == "Finishing" else "Running", words)
    if holds(case.world.status, "Running") or case.said("Ready").get("reason") == "Recovering":
        return no("Recovering", f"{words} are left; those that come back go on from the last checkpoint")
    return no("Starting", words)


def _at_risk(case: Case) -> Condition:
    due, eta = _deadline(case), _eta(case)
    if due is None:
        return no("NoDeadline")
    if case.job is not None and case.job.finished:
        late = case.job.finished_at is not None and case.job.finished_at > due
        return yes("Late", "it ended after its deadline") if late else no("Finished")
    if eta is None:
        return unknown("NoEstimate")
    if eta <= due:
        return no("OnTime")
    return yes("Late", f"expected {format_duration((eta - due).total_seconds())} after the deadline")


def _measured(case: Case) -> Condition:
    """Whether workers answer: for a while the last answer stands, as after a new start of the operator."""
    if case.world.progress is not None and case.world.uncounted:
        return no("NoCounters", case.world.uncounted)
    if case.world.progress is not None:
        return yes("WorkersAnswer")
    last, job = moment(case.journal.observed.get("updatedAt")), case.job
    if last is None:
        return unknown("NotMeasured")
    if job is None or not job.lives or not job.ready:
        return unknown("NotRunning", "no worker runs")
    if (case.world.now - last).total_seconds() > _SILENT_TIMES * case.world.settings.observe_s:
        return no("NoAnswer", f"no worker has answered since {stamp(last)}")
    kept = case.said("MetricsAvailable").get("status") == "True"
    return yes("WorkersAnswer") if kept else unknown("NoAnswer", "no worker has answered yet")


def _deadline(case: Case) -> dt.datetime | None:
    asked = case.plan.spec.deadline
    if asked is None:
        return None
    if asked.finish_by is not None:
        return asked.finish_by
    return case.created + dt.timedelta(seconds=parse_duration_s(str(asked.finish_within)))


def _eta(case: Case) -> dt.datetime | None:
    """By the measured pace where there is one, else by the prediction from the attempt's start."""
    journal, report = case.journal, case.journal.report
    if case.job is not None and case.job.finished == "Complete":
        return case.job.finished_at
    if report is None or case.plan.spec.suspend:
        return None
    if case.world.status.get("eta") and case.job is None and holds(case.world.status, "Complete"):
        return moment(case.world.status["eta"])
    observed = _observed(case)
    rate, at = observed.get("tokensPerSecond"), moment(observed.get("updatedAt"))
    if rate and at:
        left = max(0.0, _target(case) - observed.get("tokens", 0.0))
        return at + dt.timedelta(seconds=left / rate)
    began = journal.attempt.started if journal.attempt else None
    return began + dt.timedelta(seconds=report["finishSeconds"]) if began else None


def _target(case: Case) -> float:
    plan = case.plan
    return sizing.workload_of(plan, sizing.architecture_of(plan), sizing.framework_of(plan)).tokens


def _observed(case: Case) -> dict[str, Any]:
    """What was measured; renewed at most once in a while, so that a steady run costs few writes."""
    known, progress = dict(case.journal.observed), case.world.progress
    last = moment(known.get("updatedAt"))
    recent = last is not None and (case.world.now - last).total_seconds() < case.world.settings.observe_s
    if progress is None or recent:
        return known
    total = _target(case)
    known |= {
        "step": progress.step,
        "tokens": progress.tokens,
        "progress": min(1.0, progress.tokens / total),
        "tokensPerSecond": progress.tokens_per_s,
        "restarts": progress.restarts,
        "updatedAt": stamp(case.world.now),
    }
    if progress.loss is not None:
        known["loss"] = progress.loss
    if progress.checkpoint_at is not None:
        known["lastCheckpointTime"] = stamp(progress.checkpoint_at)
    return known


def _last_words(pods: tuple[Pod, ...]) -> str:
    """What the first worker that failed had to say."""
    failed = [pod for pod in pods if pod.exit_code and pod.finished_at and pod.message]
    first = min(failed, key=lambda pod: (pod.exit_code != 78, pod.finished_at), default=None)
    return f"{first.message} (exit code {first.exit_code}, pod {first.name})" if first else ""
