"""A plan's state for users: cause, deadline, pace and next step. Pure."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from rightsizer_api.quantities import parse_time
from rightsizer_engine.units import format_count, format_duration

Object = Mapping[str, Any]

_MEANS = {
    "": "the operator has not observed it yet",
    "Invalid": "its spec is wrong",
    "NoPlan": "no layout meets its goal",
    "DeadlinePassed": "its deadline has passed before it could start",
    "Sizing": "the search for its size takes longer than others, or waits for its turn",
    "SizingTooLong": "the search for its size takes too long",
    "Fault": "it triggers a fault in the operator",
    "NoSuchGPUs": "the cluster has none of the GPUs that it may use",
    "InsufficientGPUs": "it needs more GPUs than the cluster can ever give it",
    "WaitingForGPUs": "it waits for GPUs that other jobs hold",
    "Queued": "it waits in its queue",
    "Refused": "the API server rejected one of its objects",
    "Unschedulable": "no node has room for one of its pods",
    "VolumeClaim": "a volume claim of its pods is missing or not bound",
    "VolumeMount": "a volume of its pods cannot be mounted",
    "ImagePull": "its image cannot be pulled",
    "ContainerError": "a container of its pods cannot be made",
    "PodError": "the node cannot set up one of its pods",
    "QuotaExceeded": "a quota of its namespace leaves no room for its pods",
    "AdmissionDenied": "an admission policy rejects its pods",
    "FailedCreate": "the API server rejects its pods",
    "Starting": "its workers start",
    "Running": "it trains",
    "Recovering": "it lost workers and is getting them back",
    "Resizing": "its size or layout is changing",
    "Relayout": "the previous attempt is saving and stopping",
    "Finishing": "its last workers stop",
    "Suspended": "it was stopped on request; its checkpoint is saved",
    "Complete": "trained on all tokens",
    "Failed": "it used up its restarts or cannot start",
}
_PODS = "nothing; if it persists: kubectl describe pods -n {namespace} -l rightsizer.dev/plan={name}"
_NEXT = {
    "": "check the operator: kubectl get pods --all-namespaces -l app.kubernetes.io/name=rightsizer",
    "Invalid": "correct that field and apply the plan again",
    "NoPlan": "give it a later deadline, more GPUs or a smaller task; kubectl rightsizer explain {name}",
    "DeadlinePassed": "give it a later deadline",
    "Sizing": "nothing: it goes on by itself",
    "SizingTooLong": "set spec.layout, spec.resources.gpuTypes or spec.resources.gpus: less is searched then",
    "Fault": "report it with the operator's log; the operator tries again by itself",
    "NoSuchGPUs": "name other GPUs in spec.resources.gpuTypes, or add nodes: it starts by itself then",
    "InsufficientGPUs": "give it a later deadline, or add nodes or quota: it starts by itself then",
    "WaitingForGPUs": "nothing: it starts by itself when they are free",
    "Queued": "nothing: it starts when its queue admits it; kubectl get workloads -n {namespace}",
    "Refused": "fix what the message names; the operator retries",
    "Unschedulable": "free or add what the message names, or ask for less in spec.launch.podTemplate",
    "VolumeClaim": "kubectl get pvc -n {namespace}; create the claim, or wait until it is bound",
    "VolumeMount": "create what the message names; its pods start by themselves then",
    "ImagePull": "correct spec.launch.image, or its imagePullSecrets in podTemplate",
    "ContainerError": "create or correct what the message names; its pods start by themselves then",
    "PodError": "ask the administrator of the node: kubectl describe pods -n {namespace}",
    "QuotaExceeded": "free quota or have it raised: kubectl describe quota -n {namespace}",
    "AdmissionDenied": "change spec.launch.podTemplate to what the policy allows, or ask its administrator",
    "FailedCreate": "fix what the message names; Kubernetes retries",
    "Starting": _PODS,
    "Recovering": _PODS,
    "Suspended": "kubectl rightsizer resume {name} -n {namespace}",
    "Failed": "kubectl logs -n {namespace} job/{job}; then correct the plan: a changed spec is a new attempt",
    "Complete": "nothing; delete the plan when its logs are no longer needed",
}
_LATE = (
    "more GPUs may help: kubectl rightsizer plan {name} -n {namespace}; then resize it, or move its deadline"
)


def condition(plan: Object, kind: str) -> Object:
    """A condition; empty if the plan has none of that type."""
    conditions = plan.get("status", {}).get("conditions", ())
    return next((entry for entry in conditions if entry["type"] == kind), {})


def state_of(plan: Object) -> str:
    """The reason of Ready; empty before the first reconciliation."""
    return str(condition(plan, "Ready").get("reason", ""))


def why(plan: Object, events: Sequence[Object], now: dt.datetime) -> list[str]:
    """The explanation: state, size, deadline, pace, last events, next step."""
    metadata, state = plan["metadata"], state_of(plan)
    message = condition(plan, "Ready").get("message", "")
    meaning = _MEANS.get(state, "")
    head = (
        f"{metadata['name']} is {state or 'new'}: {meaning}" if meaning else f"{metadata['name']} is {state}"
    )
    lines = [f"{head}{_since(plan, now)}."]
    lines += [f"Message: {message}."] if message else []
    lines += [text for text in (_pending(plan), _size(plan), on_time(plan), _pace(plan)) if text]
    lines += [f"Changed: {_change(entry)}" for entry in plan.get("status", {}).get("resizes", ())[-3:]]
    lines += [f"Event {format_event(event, now)}" for event in events[-5:]]
    return [*lines, f"Next: {next_step(plan)}."]


def next_step(plan: Object) -> str:
    """What the user can do now."""
    state, metadata = state_of(plan), plan["metadata"]
    late = condition(plan, "DeadlineAtRisk").get("status") == "True" and state in {"Running", "Resizing"}
    step = _LATE if late else _NEXT.get(state, "nothing")
    job = plan.get("status", {}).get("attempt", {}).get("jobName", "")
    return step.format(name=metadata["name"], namespace=metadata["namespace"], job=job)


def on_time(plan: Object) -> str:
    """Whether it will meet its deadline, and by how much."""
    status = plan.get("status", {})
    due, eta = parse_time(status.get("deadline")), parse_time(status.get("eta"))
    if due is None:
        return f"It has no deadline; expected end {status['eta']}." if eta else "It has no deadline."
    if eta is None:
        return f"It is due {status['deadline']}; its end is not known yet."
    margin_s = (due - eta).total_seconds()
    over = state_of(plan) == "Complete"
    margin = f"{format_duration(abs(margin_s))} {'before' if margin_s >= 0 else 'after'} its deadline"
    verb = "ended" if over else "ends"
    judged = "On time" if margin_s >= 0 else "Late"
    return f"{judged}: it {verb} {status['eta']}, {margin}."


def format_event(event: Object, now: dt.datetime) -> str:
    """An Event in one line."""
    when = parse_time(event.get("lastTimestamp") or event["metadata"].get("creationTimestamp"))
    age = f"{format_duration(max(0.0, (now - when).total_seconds()))} ago" if when else "once"
    return f"{age}: {event['reason']}: {event['message']}"


def _since(plan: Object, now: dt.datetime) -> str:
    since = parse_time(condition(plan, "Ready").get("lastTransitionTime"))
    return f", for {format_duration((now - since).total_seconds())}" if since and now > since else ""


def _pending(plan: Object) -> str:
    """The latest spec, if it cannot be applied while an older one runs."""
    sized = condition(plan, "Sized")
    if sized.get("status") == "False" and sized.get("reason") != state_of(plan):
        return f"The latest spec cannot be applied ({sized['reason']}): {sized.get('message', '')}."
    return ""


def _size(plan: Object) -> str:
    sizing = plan.get("status", {}).get("sizing")
    if not sizing:
        return ""
    resources = plan["spec"].get("resources", {})
    limits = [f"{bound} {resources[key]}" for key, bound in _LIMITS.items() if resources.get(key)]
    requested = f" (requested: {', '.join(limits)})" if limits else ""
    gpus = f"{sizing['gpus']} x {sizing['gpuType']}, {sizing['layoutText']}"
    message = condition(plan, "Sized").get("message", "")
    detail = f" Sized as: {message}." if condition(plan, "Sized").get("status") == "True" and message else ""
    return f"Size: {gpus}{requested}.{detail}{_opening(plan)}"


def _opening(plan: Object) -> str:
    """How the plan opens, and what has come of it."""
    status = plan["status"]
    opening = status["sizing"].get("opening")
    if not opening:
        return ""
    resized = any(row.get("cause") == "Measured" for row in status.get("resizes", ()))
    known = "It was measured and resized since." if resized else "It was not resized by measurement so far."
    return f" Plan: {opening['text']}. {known}"


_LIMITS = {"gpus": "exactly", "minGPUs": "at least", "maxGPUs": "at most"}


def _pace(plan: Object) -> str:
    status = plan.get("status", {})
    seen, sizing = status.get("observed", {}), status.get("sizing", {})
    rate, expected = seen.get("tokensPerSecond"), sizing.get("tokensPerSecond")
    if not rate:
        return ""
    done = f"{seen.get('progress', 0.0):.0%} done at step {seen.get('step', 0)}"
    text = f"Pace: {format_count(rate)} tokens/s, {done}"
    if expected:
        text += f"; {rate / expected:.2f} x the prediction"
    return text + (f"; {seen['restarts']} restarts." if seen.get("restarts") else ".")


def _change(entry: Object) -> str:
    before, after = entry.get("fromGPUs"), entry.get("toGPUs")
    return f"{entry['at']}: {before} to {after} GPUs ({entry.get('toLayout', '')}): {entry['reason']}."
