"""What keeps an attempt's workers from running, in words and with the cluster's own reason. Pure."""

from collections.abc import Iterable

from rightsizer_engine.values import immutable
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.names import RENDEZVOUS
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.snapshot import AttemptJob, ChildWarning

OBSTACLES = (
    "Unschedulable",
    "VolumeClaim",
    "VolumeMount",
    "ImagePull",
    "ContainerError",
    "PodError",
    "QuotaExceeded",
    "AdmissionDenied",
    "FailedCreate",
)
"""Every reason of an obstacle, which becomes the plan's state."""

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_IN_EVENTS = {
    "exceeded quota": "QuotaExceeded",
    "admission webhook": "AdmissionDenied",
    "ValidatingAdmissionPolicy": "AdmissionDenied",
    "violates PodSecurity": "AdmissionDenied",
}
"""What the message says if the API server rejects pods, and the reason that this becomes."""


@immutable
class Obstacle:
    """A reason in CamelCase, and a sentence."""

    reason: str
    message: str


def obstacle(state: ReconcileState, job: AttemptJob) -> Obstacle | None:
    """The first thing that keeps workers or their rendezvous from running; None if nothing is known."""
    pods = [pod for pod in state.snapshot.pods if pod.attempt == job.attempt or pod.role == RENDEZVOUS]
    found = (_of_pod(pod) for pod in pods if pod.phase == "Pending")
    return next((each for each in found if each), None) or _of_warnings(state.snapshot.warnings)


def _of_pod(pod: Pod) -> Obstacle | None:
    name = f"pod {pod.name}"
    if pod.unschedulable:
        reason = "VolumeClaim" if "persistentvolumeclaim" in pod.unschedulable.lower() else "Unschedulable"
        return Obstacle(reason=reason, message=f"{name} cannot be scheduled: {pod.unschedulable}")
    if not pod.waiting:
        return None
    if pod.waiting in _IMAGE:
        return Obstacle(reason="ImagePull", message=f"{name} cannot pull its image: {_said(pod)}")
    return Obstacle(reason="ContainerError", message=f"the container of {name} cannot start: {_said(pod)}")


def _said(pod: Pod) -> str:
    return pod.waiting_message or pod.waiting


def _of_warnings(warnings: Iterable[ChildWarning]) -> Obstacle | None:
    """A Warning Event: of the Job or the store's ReplicaSet, that no pod can be created; of a pod, else."""
    for warning in warnings:
        if warning.kind == "Pod":
            reason = "VolumeMount" if "Mount" in warning.reason or "Attach" in warning.reason else "PodError"
            return Obstacle(reason=reason, message=f"pod {warning.name}: {warning.reason}: {warning.message}")
        known = (reason for text, reason in _IN_EVENTS.items() if text in warning.message)
        message = f"{warning.kind} {warning.name} cannot create its pods: {warning.message}"
        return Obstacle(reason=next(known, "FailedCreate"), message=message)
    return None
