"""Claims of dynamic resource allocation for the GPUs of an attempt's pods. Pure."""

from typing import Any

from rightsizer_operator.manifests.objects import metadata
from rightsizer_operator.manifests.pod_spec import AttemptLaunch, labels
from rightsizer_operator.values import names
from rightsizer_operator.values.devices import selector

Object = dict[str, Any]


def claim_template(launch: AttemptLaunch) -> Object | None:
    """The ResourceClaimTemplate of which each pod gets a claim; None where pods request a resource."""
    devices = launch.devices
    if devices is None:
        return None
    exactly: Object = {
        "deviceClassName": devices.device_class,
        "allocationMode": "ExactCount",
        "count": launch.gpus_per_pod,
    }
    if launch.products:
        exactly["selectors"] = [{"cel": {"expression": selector(launch.products)}}]
    own = labels(launch, names.WORKER)
    return {
        "apiVersion": devices.api,
        "kind": "ResourceClaimTemplate",
        "metadata": metadata(launch, names.job_name(launch.plan.metadata.name, launch.attempt), own),
        "spec": {
            "metadata": {"labels": own},
            "spec": {"devices": {"requests": [{"name": names.CLAIM, "exactly": exactly}]}},
        },
    }
