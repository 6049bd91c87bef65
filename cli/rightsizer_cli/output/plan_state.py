"""A plan's state for users: cause, deadline, pace and next step. Pure."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from rightsizer_api.quantities import parse_time
from rightsizer_api.state import ConditionType, State
from rightsizer_engine.units import format_count, format_duration
from rightsizer_operator.kubectl.plans import condition, state_of

Object = Mapping[str, Any]

_PODS = "nothing; if it persists: kubectl describe pods -n {namespace} -l rightsizer.dev/plan={name}"
_NEXT = {
    State.NEW: "check the operator: kubectl get pods --all-namespaces -l app.kubernetes.io/name=rightsizer",
    State.INVALID: "correct that field and apply the plan again",
    State.NO_PLAN: "give it a later deadline, more GPUs or a smaller task; kubectl rightsizer explain {name}",
    State.DEADLINE_PASSED: "give it a later deadline",
    State.SIZING: "nothing: it goes on by itself",
    State.SIZING_TOO_LONG: (
        "set spec.layout, spec.resources.gpuTypes or spec.resources.gpus: less is searched then"
    ),
    State.FAULT: "report it with the operator's log; the operator tries again by itself",
    State.NO_SUCH_GPUS: "name other GPUs in spec.resources.gpuTypes, or add nodes: it starts by itself then",
    State.INSUFFICIENT_GPUS: "give it a later deadline, or add nodes or quota: it starts by itself then",
    State.WAITING_FOR_GPUS: "nothing: it starts by itself when they are free",
    State.QUEUED: "nothing: it starts when its queue admits it; kubectl get workloads -n {namespace}",
    State.REFUSED: "fix what the message names; the operator retries",
    State.UNSCHEDULABLE: "free or add what the message names, or ask for less in spec.launch.podTemplate",
    State.VOLUME_CLAIM: "kubectl get pvc -n {namespace}; create the claim, or wait until it is bound",
    State.VOLUME_MOUNT: "create what the message names; its pods start by themselves then",
    State.IMAGE_PULL: "correct spec.launch.image, or its imagePullSecrets in podTemplate",
    State.CONTAINER_ERROR: "create or correct what the message names; its pods start by themselves then",
    State.POD_ERROR: "ask the administrator of the node: kubectl describe pods -n {namespace}",
    State.QUOTA_EXCEEDED: "free quota or have it raised: kubectl describe quota -n {namespace}",
    State.ADMISSION_DENIED: (
        "change spec.launch.podTemplate to what the policy allows, or ask its administrator"
    ),
    State.FAILED_CREATE: "fix what the message names; Kubernetes retries",
    State.STARTING: _PODS,
    State.RECOVERING: _PODS,
    State.SUSPENDED: "kubectl rightsizer resume {name} -n {namespace}",
    State.FAILED: (
        "kubectl logs -n {namespace} job/{job}; then correct the plan: a changed spec is a new attempt"
    ),
    State.COMPLETE: "nothing; delete the plan when its logs are no longer needed",
}
_LATE = (
    "more GPUs may help: kubectl rightsizer plan {name} -n {namespace}; then resize it, or move its deadline"
)


def why(plan: Object, events: Sequence[Object], now: dt.datetime) -> list[str]:
    """The explanation: state, size, deadline, pace, last events, next step."""
    metadata, state = plan["metadata"], state_of(plan)
    message = condition(plan, ConditionType.READY).get("message", "")
    meaning = known.sentence if (known := State.of(state)) else ""
    head = (
        f"{metadata['name']} is {state or 'new'}: {meaning}" if meaning else f"{metadata['name']} is {state}"
    )
    lines = [f"{head}{_since(plan, now)}."]
    lines += [f"Message: {message}."] if message else []
    lines += [text for text in (_pending(plan), _size(plan), on_time(plan), _pace(plan)) if text]
    lines += [f"Changed: {_change(entry)}" for entry in plan.get("status", {}).get("resizes", ())[-3:]]
    lines += [f"Event {_format_event(event, now)}" for event in events[-5:]]
    return [*lines, f"Next: {next_step(plan)}."]


def next_step(plan: Object) -> str:
    """The user's next step."""
    state, metadata = state_of(plan), plan["metadata"]
    late = condition(plan, ConditionType.DEADLINE_AT_RISK).get("status") == "True" and state in {
        State.RUNNING,
        State.RESIZING,
    }
    step = _LATE if late else _NEXT.get(State.of(state) or State.RUNNING, "nothing")
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
    over = state_of(plan) == State.COMPLETE
    margin = f"{format_duration(abs(margin_s))} {'before' if margin_s >= 0 else 'after'} its deadline"
    verb = "ended" if over else "ends"
    judged = "On time" if margin_s >= 0 else "Late"
    return f"{judged}: it {verb} {status['eta']}, {margin}."


def _format_event(event: Object, now: dt.datetime) -> str:
    """An Event in one line."""
    when = parse_time(event.get("lastTimestamp") or event["metadata"].get("creationTimestamp"))
    age = f"{format_duration(max(0.0, (now - when).total_seconds()))} ago" if when else "once"
    return f"{age}: {event['reason']}: {event['message']}"


def _since(plan: Object, now: dt.datetime) -> str:
    since = parse_time(condition(plan, ConditionType.READY).get("lastTransitionTime"))
    return f", for {format_duration((now - since).total_seconds())}" if since and now > since else ""


def _pending(plan: Object) -> str:
    """The latest spec, if it cannot be applied while an older one runs."""
    sized = condition(plan, ConditionType.SIZED)
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
    message = condition(plan, ConditionType.SIZED).get("message", "")
    detail = (
        f" Sized as: {message}."
        if condition(plan, ConditionType.SIZED).get("status") == "True" and message
        else ""
    )
    return f"Size: {gpus}{requested}.{detail}{_opening(plan)}"


def _opening(plan: Object) -> str:
    """The plan's opening size, and its later sizes."""
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
