"""Obstacles to an attempt's workers, in words and with the cluster's own reason. Pure."""

from collections.abc import Iterable

from rightsizer_api.state import State
from rightsizer_engine.values import immutable
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.names import RENDEZVOUS
from rightsizer_operator.values.pods import Pod, PodPhase
from rightsizer_operator.values.snapshot import AttemptJob, ChildWarning

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_IN_EVENTS = {
    "exceeded quota": State.QUOTA_EXCEEDED,
    "admission webhook": State.ADMISSION_DENIED,
    "ValidatingAdmissionPolicy": State.ADMISSION_DENIED,
    "violates PodSecurity": State.ADMISSION_DENIED,
}
"""What the message says if the API server rejects pods, and the reason that this becomes."""


@immutable
class Obstacle:
    """An obstacle to pods, as a state, and a sentence."""

    state: State
    message: str


def obstacle(state: ReconcileState, job: AttemptJob) -> Obstacle | None:
    """The first thing that keeps workers or their rendezvous from running; None if nothing is known."""
    pods = [pod for pod in state.snapshot.pods if pod.attempt == job.attempt or pod.role == RENDEZVOUS]
    found = (_of_pod(pod) for pod in pods if pod.phase == PodPhase.PENDING)
    return next((each for each in found if each), None) or _of_warnings(state.snapshot.warnings)


def _of_pod(pod: Pod) -> Obstacle | None:
    name = f"pod {pod.name}"
    if pod.unschedulable:
        state = (
            State.VOLUME_CLAIM
            if "persistentvolumeclaim" in pod.unschedulable.lower()
            else State.UNSCHEDULABLE
        )
        return Obstacle(state=state, message=f"{name} cannot be scheduled: {pod.unschedulable}")
    if not pod.waiting:
        return None
    if pod.waiting in _IMAGE:
        return Obstacle(state=State.IMAGE_PULL, message=f"{name} cannot pull its image: {_said(pod)}")
    return Obstacle(
        state=State.CONTAINER_ERROR, message=f"the container of {name} cannot start: {_said(pod)}"
    )


def _said(pod: Pod) -> str:
    return pod.waiting_message or pod.waiting


def _of_warnings(warnings: Iterable[ChildWarning]) -> Obstacle | None:
    """A Warning Event: of the Job or the store's ReplicaSet, that no pod can be created; of a pod, else."""
    for warning in warnings:
        if warning.kind == "Pod":
            state = (
                State.VOLUME_MOUNT
                if "Mount" in warning.reason or "Attach" in warning.reason
                else State.POD_ERROR
            )
            return Obstacle(state=state, message=f"pod {warning.name}: {warning.reason}: {warning.message}")
        known = (state for text, state in _IN_EVENTS.items() if text in warning.message)
        message = f"{warning.kind} {warning.name} cannot create its pods: {warning.message}"
        return Obstacle(state=next(known, State.FAILED_CREATE), message=message)
    return None
