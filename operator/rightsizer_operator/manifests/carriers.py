"""The objects that carry an attempt's Job. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from rightsizer_api.spec.launch import Carrier
from rightsizer_operator.manifests.objects import job
from rightsizer_operator.manifests.pod_spec import AttemptLaunch
from rightsizer_operator.values import names
from rightsizer_operator.values.carriers import JOB_SET_API, TRAINER_API

Object = dict[str, Any]

_REPLICATED = "node"
_OF_THE_CARRIER = ("suspend", "ttlSecondsAfterFinished")
"""Fields of a Job's spec that its carrier decides."""


def carried(launch: AttemptLaunch, *, active_deadline_s: int | None = None) -> tuple[Object, ...]:
    """The attempt's Job as the plan wants it carried, in the order of creation."""
    carrier = launch.plan.spec.launch.carrier
    return _FORMS[carrier](launch, job(launch, active_deadline_s=active_deadline_s))


def _as_job(launch: AttemptLaunch, made: Object) -> tuple[Object, ...]:
    return (made,)


def _as_job_set(launch: AttemptLaunch, made: Object) -> tuple[Object, ...]:
    spec = _job_set_spec(launch, made) | {"ttlSecondsAfterFinished": made["spec"]["ttlSecondsAfterFinished"]}
    return (
        {
            "apiVersion": JOB_SET_API,
            "kind": "JobSet",
            "metadata": made["metadata"],
            "spec": {**spec, **_suspension(made)},
        },
    )


def _as_train_job(launch: AttemptLaunch, made: Object) -> tuple[Object, ...]:
    """A TrainJob of a runtime of its own, which has the whole template: Trainer adds nothing to it.

    Neither has a time to live: Trainer would make an expired JobSet again, which would train again.
    """
    metadata, kind = made["metadata"], "TrainingRuntime"
    runtime = {
        "apiVersion": TRAINER_API,
        "kind": kind,
        "metadata": metadata | {"labels": _unqueued(metadata["labels"])},
        "spec": {"template": {"spec": _job_set_spec(launch, made)}},
    }
    group = TRAINER_API.partition("/")[0]
    reference = {"apiGroup": group, "kind": kind, "name": metadata["name"]}
    train_job = {
        "apiVersion": TRAINER_API,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": reference, **_suspension(made)},
    }
    return runtime, train_job


def _job_set_spec(launch: AttemptLaunch, made: Object) -> Object:
    """A JobSet of one Job. The workers meet at the rendezvous store and need no host names."""
    metadata = made["metadata"]
    annotations = {names.CARRIER: str(launch.plan.spec.launch.carrier), names.PLAN_UID: launch.owner_uid}
    template = {
        "metadata": {
            "labels": _unqueued(metadata["labels"]),
            "annotations": metadata["annotations"] | annotations,
        },
        "spec": {key: value for key, value in made["spec"].items() if key not in _OF_THE_CARRIER},
    }
    return {
        "network": {"enableDNSHostnames": False},
        "replicatedJobs": [{"name": _REPLICATED, "replicas": 1, "template": template}],
    }


def _unqueued(labels: Object) -> Object:
    """Labels without the queue's, which only the carrier has."""
    queue = (names.QUEUE_LABEL, names.PRIORITY_LABEL)
    return {key: value for key, value in labels.items() if key not in queue}


def _suspension(made: Object) -> Object:
    return {"suspend": True} if made["spec"].get("suspend") else {}


_FORMS: Mapping[Carrier, Callable[[AttemptLaunch, Object], tuple[Object, ...]]] = {
    Carrier.JOB: _as_job,
    Carrier.JOB_SET: _as_job_set,
    Carrier.TRAIN_JOB: _as_train_job,
}
