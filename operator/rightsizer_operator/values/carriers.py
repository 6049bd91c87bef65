"""Carriers of an attempt's Job: the Job itself, or an object that another controller expands. Pure.

The operator creates, suspends and deletes the carrier. It reads the Job, which says more of its workers: the
carrier's controller copies the labels and annotations of the Job's template.
"""

from collections.abc import Mapping
from typing import Any

from rightsizer_api.spec.launch import Carrier
from rightsizer_engine.values import immutable

Object = Mapping[str, Any]

JOB_SET_API = "jobset.x-k8s.io/v1alpha2"
TRAINER_API = "trainer.kubeflow.org/v1alpha1"


@immutable
class CarrierKind:
    """One kind of carrier.

    `objects` are the kinds of an attempt's objects, which have its name, in the order of their deletion.
    `install` is what serves it, `resource` its name in the API.
    """

    objects: tuple[str, ...]
    install: str = "Kubernetes"
    resource: str = ""


KINDS: Mapping[str, CarrierKind] = {
    Carrier.JOB: CarrierKind(objects=("Job",)),
    Carrier.JOB_SET: CarrierKind(
        objects=("JobSet",),
        install="JobSet (https://jobset.sigs.k8s.io)",
        resource="jobsets.jobset.x-k8s.io",
    ),
    Carrier.TRAIN_JOB: CarrierKind(
        # Trainer makes a missing JobSet again while its TrainJob exists. The JobSet stays until its pods have
        # ended; meanwhile the TrainJob goes, and the runtime as soon as nothing uses it.
        objects=("JobSet", "TrainJob", "TrainingRuntime"),
        install="JobSet and Kubeflow Trainer v2 (https://www.kubeflow.org/docs/components/trainer)",
        resource="trainjobs.trainer.kubeflow.org",
    ),
}

_TEMPLATES: Mapping[str, tuple[str | int, ...]] = {
    "JobSet": ("spec", "replicatedJobs", 0, "template"),
    "TrainingRuntime": ("spec", "template", "spec", "replicatedJobs", 0, "template"),
}
"""Where an object that the operator creates has its Job's template."""


def carrier_kind(kind: str) -> CarrierKind:
    """The kind that an annotation names; a Job if it names none that is known."""
    return KINDS.get(kind, KINDS[Carrier.JOB])


def remedy(kind: str) -> str:
    """The remedy if the cluster does not serve a kind; empty if it is not a carrier's."""
    found = next((KINDS[name] for name in KINDS if kind == name or kind in KINDS[name].objects), None)
    return f"install {found.install}, or set spec.launch.as: Job" if found else ""


def job_within(raw: Object) -> Object | None:
    """A Job, or the one that a carrier's controller will create; None if the object holds neither."""
    if raw["kind"] == "Job":
        return raw
    if raw["kind"] not in _TEMPLATES:
        return None
    template: Any = raw
    for step in _TEMPLATES[raw["kind"]]:
        template = template[step]
    metadata = {**raw["metadata"], "annotations": template["metadata"]["annotations"]}
    return {"metadata": metadata, "spec": template["spec"]}
