"""The manifests of a launch. Pure.

A ReplicaSet of one rendezvous pod and its headless Service serve all attempts of a plan. Each attempt is one
Indexed Job. A ReplicaSet, unlike a bare pod, replaces the rendezvous pod without the operator, and on another
node if its node fails. Its Service resolves to the pod only while it listens.
"""

from collections.abc import Mapping
from typing import Any

from rightsizer_launch.argv.torchrun import DEFAULT_PORT
from rightsizer_launch.worker.restart_monitor import EXIT_GIVEN_UP
from rightsizer_operator.manifests.pod_security import pod_security, store_security
from rightsizer_operator.manifests.pod_spec import (
    AttemptLaunch,
    labels,
    selector,
    template,
    tolerations,
    user_spec,
)
from rightsizer_operator.manifests.strategic_merge import merge
from rightsizer_operator.values import names
from rightsizer_operator.values.kueue import topology_annotations
from rightsizer_operator.values.pods import PodPhase
from rightsizer_operator.values.requests import STORE

Object = dict[str, Any]

_BACKOFF_LIMIT = 2_147_483_647  # the entrypoint limits the restart rate; a Job's count never resets
_FINAL_CODES = (64, EXIT_GIVEN_UP)  # the script's "do not retry" (EX_USAGE), and the entrypoint's
_STORE_TAKES = (
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
)
"""Fields of the pod template that the rendezvous pod takes too."""


def service(launch: AttemptLaunch) -> Object:
    """The headless Service of the rendezvous store."""
    own = labels(launch, names.RENDEZVOUS)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(launch, names.rendezvous_name(launch.plan.metadata.name), own),
        "spec": {
            "clusterIP": "None",
            "selector": selector(launch, names.RENDEZVOUS),
            "ports": [{"name": "rendezvous", "port": DEFAULT_PORT, "protocol": "TCP"}],
        },
    }


def rendezvous(launch: AttemptLaunch) -> Object:
    """The ReplicaSet of the rendezvous store, which holds no training state and outlives the workers."""
    own = labels(launch, names.RENDEZVOUS)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": metadata(launch, names.rendezvous_name(launch.plan.metadata.name), own),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": selector(launch, names.RENDEZVOUS)},
            "template": {"metadata": {"labels": own}, "spec": _store_pod(launch)},
        },
    }


def _store_pod(launch: AttemptLaunch) -> Object:
    """The rendezvous pod: it runs where the workers may run, with their image settings and user."""
    users = user_spec(launch)
    spec: Object = {
        "containers": [_store(launch)],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "tolerations": tolerations(launch),
        "securityContext": pod_security(users),
    }
    kept = {key: users[key] for key in _STORE_TAKES if key in users}
    affinity = users.get("affinity", {}).get("nodeAffinity")
    merged: Object = merge(spec, kept | ({"affinity": {"nodeAffinity": affinity}} if affinity else {}))
    return merged


def _store(launch: AttemptLaunch) -> Object:
    """The store's container, with the fields of the template's container `store` merged in."""
    stated = {each.get("name"): each for each in user_spec(launch).get("containers", ())}
    pull = stated.get(names.CONTAINER, {}).get("imagePullPolicy")
    container = {
        "name": names.STORE,
        "image": launch.settings.rendezvous_image or launch.plan.spec.launch.image,
        **({"imagePullPolicy": pull} if pull else {}),
        "command": ["python", "-m", "rightsizer_launch.worker.rendezvous"],
        "args": ["--host", "0.0.0.0", "--port", str(DEFAULT_PORT)],  # noqa: S104 -- a pod's own address
        "ports": [{"name": "rendezvous", "containerPort": DEFAULT_PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": DEFAULT_PORT}, "periodSeconds": 1, "failureThreshold": 3},
        "resources": {"requests": STORE, "limits": {"memory": "1Gi"}},
        "securityContext": store_security(user_spec(launch)),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 -- the pod's own
    }
    merged: Object = merge(container, stated.get(names.STORE, {}))
    return merged


def settings_map(launch: AttemptLaunch) -> Object | None:
    """The ConfigMap of a framework's settings files, such as DeepSpeed's; None without files."""
    files = launch.worker.files
    if not files:
        return None
    name = names.job_name(launch.plan.metadata.name, launch.attempt)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(launch, name, labels(launch, names.WORKER)),
        "data": dict(files),
    }


def job(launch: AttemptLaunch, *, active_deadline_s: int | None = None) -> Object:
    """The attempt's Job: Indexed, with identical workers."""
    plan, name = launch.plan, names.job_name(launch.plan.metadata.name, launch.attempt)
    own = labels(launch, names.WORKER) | {names.LABEL_ATTEMPT: str(launch.attempt)}
    queued = {
        label: value
        for label, value in (plan.metadata.labels or {}).items()
        if label in (names.QUEUE_LABEL, names.PRIORITY_LABEL)
    }
    in_place = launch.worker.elastic.in_place
    notes = {
        names.DIGEST: launch.digest,
        names.GPU_TYPE: launch.gpu_type,
        names.ELASTIC: str(in_place).lower(),
    }
    if launch.devices is not None:
        notes[names.GPUS] = str(launch.gpus_per_pod)
    if launch.reserve_gpus:
        notes[names.RESERVE] = str(launch.reserve_gpus)
    if queued and in_place:
        notes[names.QUEUE_ELASTIC] = "true"
    pods = template(launch, on=launch.products)
    preferred = topology_annotations(launch.queue, pods=launch.pods)
    if preferred:
        annotations = pods["metadata"].get("annotations", {})
        pods = pods | {"metadata": pods["metadata"] | {"annotations": preferred | annotations}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(launch, name, own | queued) | {"annotations": notes},
        "spec": {
            **({"suspend": True} if launch.queue else {}),
            **({"activeDeadlineSeconds": active_deadline_s} if active_deadline_s else {}),
            "completionMode": "Indexed",
            "parallelism": launch.pods,
            "completions": launch.pods,
            "backoffLimit": _BACKOFF_LIMIT,
            "podReplacementPolicy": PodPhase.FAILED,
            "ttlSecondsAfterFinished": launch.settings.job_ttl_s,
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "podFailurePolicy": {"rules": _failure_rules()},
            "template": pods,
        },
    }


def _failure_rules() -> list[Object]:
    exits = {"containerName": names.CONTAINER, "operator": "In", "values": list(_FINAL_CODES)}
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": exits},
    ]


def metadata(launch: AttemptLaunch, name: str, own: Mapping[str, str]) -> Object:
    """A child's metadata: the plan owns it, so that it goes with the plan."""
    return {
        "name": name,
        "namespace": launch.plan.metadata.namespace,
        "labels": dict(own),
        "ownerReferences": [
            {
                "apiVersion": launch.plan.api_version,
                "kind": launch.plan.kind,
                "name": launch.plan.metadata.name,
                "uid": launch.owner_uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
