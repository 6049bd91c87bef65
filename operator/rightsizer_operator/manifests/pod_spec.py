"""The pods of an attempt: the worker, torchrun's environment, the user's template. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.spec.launch import Carrier
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.values import immutable
from rightsizer_launch.argv.torchrun import DEFAULT_PORT, Torchrun, environment, program_arguments
from rightsizer_launch.worker import progress
from rightsizer_launch.worker_spec import Directories, WorkerSpec, size_variables
from rightsizer_operator.manifests.pod_resources import shared_memory, shared_memory_mount, unstated
from rightsizer_operator.manifests.pod_security import pod_security, states_user, trainer_security
from rightsizer_operator.manifests.strategic_merge import merged_template
from rightsizer_operator.values import names
from rightsizer_operator.values.devices import Devices
from rightsizer_operator.values.kueue import Queue
from rightsizer_operator.values.requests import Amounts
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.vendors import vendor_of

Object = dict[str, Any]

DIRECTORIES = Directories(run="/var/run/rightsizer", files="/etc/rightsizer")
"""Paths in a pod. A relative checkpoint path starts at the working directory: `run` ends with its pod."""

_KEY_DIRECTORY = "/etc/rightsizer-key"
_TERMINATION_LOG = "/dev/termination-log"
_SHUTDOWN_S = 20  # for the agents to end, after the workers' grace
_UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@immutable
class AttemptLaunch:
    """An attempt: the plan, its size and what its workers run.

    `products` are the node labels of its GPU type; `queue` is its Kueue queue, if it waits in one;
    `reserve_gpus` is what a staged plan may grow to, 0 for others; `devices` are those that its pods claim.
    `resource` is what pods request of the strategy `mixed` of MIG; empty: the vendor's. `requests` is the CPU
    and memory of a worker, `shm_bytes` the limit of its /dev/shm; 0: its node's memory. `digest` says
    what the workers run.
    """

    plan: TrainingPlan
    owner_uid: str
    attempt: int
    layout: Layout
    gpus_per_pod: int
    gpu_type: str
    worker: WorkerSpec
    products: tuple[str, ...] = ()
    reserve_gpus: int = 0
    queue: Queue | None = None
    devices: Devices | None = None
    resource: str = ""
    requests: Amounts = field(default_factory=dict)
    shm_bytes: int = 0
    digest: str = ""
    settings: OperatorSettings = field(default_factory=OperatorSettings)

    @property
    def pods(self) -> int:
        """The number of worker pods."""
        return self.layout.gpus // self.gpus_per_pod


def digest(launch: AttemptLaunch) -> str:
    """A hash of what the workers run. A new attempt and a resize in place do not change it.

    It covers what the plan and the framework state, not the pods that this version of the operator makes of
    it: an upgrade of the operator restarts no training.
    """
    stated, worker = launch.plan.spec.launch, launch.worker
    changing = size_variables(launch.plan) if worker.elastic.in_place else frozenset[str]()
    runs = {
        "program": program_arguments(worker.program),
        "files": dict(worker.files),
        "environment": {name: value for name, value in worker.environment.items() if name not in changing},
        "variables": sorted(variable.model_dump_json(exclude_none=True) for variable in stated.env),
        "image": stated.image,
        "workingDir": stated.working_dir,
        "podTemplate": stated.pod_template and stated.pod_template.model_dump(exclude_none=True),
        "nodes": worker.elastic.nodes(launch.gpus_per_pod) if worker.elastic.in_place else launch.pods,
        "gpusPerPod": launch.gpus_per_pod,
        **({"as": stated.carrier} if stated.carrier is not Carrier.JOB else {}),
    }
    return hashlib.sha256(json.dumps(runs, sort_keys=True).encode()).hexdigest()[:16]


def template(launch: AttemptLaunch, *, on: tuple[str, ...]) -> Object:
    """The workers' pods, the user's template merged in."""
    own = labels(launch, names.WORKER) | {names.LABEL_ATTEMPT: str(launch.attempt)}
    spec: Object = {
        "containers": [_trainer(launch)],
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": int(launch.worker.grace_s) + _SHUTDOWN_S,
        "tolerations": tolerations(launch),
        "securityContext": pod_security(user_spec(launch)),
        "topologySpreadConstraints": [_spread(launch)],
        "volumes": [
            {"name": "rightsizer-run", "emptyDir": {}},
            _key_volume(launch),
            *_settings_volume(launch),
            *shared_memory(user_spec(launch), launch.shm_bytes),
        ],
        **_claims(launch),
    }
    template = launch.plan.spec.launch.pod_template
    users = template.model_dump(by_alias=True, exclude_none=True) if template else None
    merged = merged_template({"metadata": {"labels": own}, "spec": spec}, users)
    if on and launch.devices is None:  # a claim names the products itself
        label = f"{launch.resource}.product" if launch.resource else vendor_of(launch.gpu_type).product_label
        _require(merged["spec"], label, on)
    return merged


def _trainer(launch: AttemptLaunch) -> Object:
    stated = launch.plan.spec.launch
    container: Object = {
        "name": names.CONTAINER,
        "image": stated.image,
        "command": ["python", "-m", "rightsizer_launch.worker.entrypoint"],
        "args": list(program_arguments(launch.worker.program)),
        "env": _variables(launch),
        "ports": [{"name": "metrics", "containerPort": names.METRICS_PORT, "protocol": "TCP"}],
        "resources": _resources(launch),
        "securityContext": trainer_security(user_spec(launch)),
        "terminationMessagePath": _TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "rightsizer-run", "mountPath": DIRECTORIES.run},
            {"name": "rightsizer-key", "mountPath": _KEY_DIRECTORY, "readOnly": True},
            *_settings_mount(launch),
            *shared_memory_mount(user_spec(launch)),
        ],
    }
    if stated.working_dir:
        container["workingDir"] = stated.working_dir
    return container


def _resources(launch: AttemptLaunch) -> Object:
    requested = unstated(user_spec(launch), launch.requests)
    requests = {"requests": requested} if requested else {}
    if launch.devices is not None:
        return {"claims": [{"name": names.CLAIM}], **requests}
    resource = launch.resource or vendor_of(launch.gpu_type).resource
    return {"limits": {resource: launch.gpus_per_pod}, **requests}


def _claims(launch: AttemptLaunch) -> Object:
    """The claim that each pod gets of the attempt's ResourceClaimTemplate."""
    name = names.job_name(launch.plan.metadata.name, launch.attempt)
    claim = {"name": names.CLAIM, "resourceClaimTemplateName": name}
    return {"resourceClaims": [claim]} if launch.devices is not None else {}


def _variables(launch: AttemptLaunch) -> list[Object]:
    """Environment of a worker: the pod's address first, because others refer to it; the user's last."""
    values = {
        **environment(_torchrun(launch)),
        progress.ENV_ATTEMPT: str(launch.attempt),
        progress.ENV_RENDEZVOUS_KEY_FILE: f"{_KEY_DIRECTORY}/{names.KEY}",
        progress.ENV_METRICS_PORT: str(names.METRICS_PORT),
        progress.ENV_METRICS_ADDRESS: "0.0.0.0",  # noqa: S104 -- a pod's own address
        **_home(launch),
        **launch.worker.environment,
    }
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    users = [
        variable.model_dump(by_alias=True, exclude_none=True) for variable in launch.plan.spec.launch.env
    ]
    taken = {variable["name"] for variable in users}
    ours = [{"name": name, "value": value} for name, value in values.items() if name not in taken]
    return [address, *ours, *users]


def _home(launch: AttemptLaunch) -> dict[str, str]:
    """A home directory and a name for our user, which images do not know."""
    ours = not states_user(user_spec(launch))
    return {"HOME": DIRECTORIES.run, "USER": "rightsizer"} if ours else {}


def _torchrun(launch: AttemptLaunch) -> Torchrun:
    plan = launch.plan
    fewest, most = launch.worker.elastic.nodes(launch.gpus_per_pod)
    return Torchrun(
        name=launch.owner_uid,
        attempt=launch.attempt,
        endpoint=f"{names.rendezvous_name(plan.metadata.name)}.{plan.metadata.namespace}.svc:{DEFAULT_PORT}",
        min_nodes=min(fewest, launch.pods),
        max_nodes=max(most, launch.pods),
        workers_per_node=launch.gpus_per_pod,
        local_address="$(POD_IP)",
        last_call_s=5,
        shutdown_s=int(launch.worker.grace_s),
    )


def _key_volume(launch: AttemptLaunch) -> Object:
    name = names.key_name(launch.plan.metadata.name, launch.attempt, launch.owner_uid)
    return {"name": "rightsizer-key", "secret": {"secretName": name}}


def _settings_volume(launch: AttemptLaunch) -> list[Object]:
    name = names.job_name(launch.plan.metadata.name, launch.attempt)
    return [{"name": "rightsizer-settings", "configMap": {"name": name}}] if launch.worker.files else []


def _settings_mount(launch: AttemptLaunch) -> list[Object]:
    mount = {"name": "rightsizer-settings", "mountPath": DIRECTORIES.files, "readOnly": True}
    return [mount] if launch.worker.files else []


def _spread(launch: AttemptLaunch) -> Object:
    """Prefer one pod a node, which is what the engine priced."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(launch, names.WORKER)},
    }


def user_spec(launch: AttemptLaunch) -> Mapping[str, Any]:
    """The pod spec of the user's template."""
    template = launch.plan.spec.launch.pod_template
    return (template.spec if template else None) or {}


def tolerations(launch: AttemptLaunch) -> list[Object]:
    """Tolerations of GPU nodes, and of an unresponsive node for a time; the user's win."""
    stated = user_spec(launch).get("tolerations", ())
    users = [toleration for toleration in stated if toleration.get("key") in _UNREACHABLE_TAINTS]
    taken = {toleration["key"] for toleration in users}
    ours = {
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": launch.settings.evict_s,
    }
    gpus = {"key": vendor_of(launch.gpu_type).resource, "operator": "Exists", "effect": "NoSchedule"}
    return [*users, *({"key": key, **ours} for key in _UNREACHABLE_TAINTS if key not in taken), gpus]


def _require(spec: Object, key: str, values: tuple[str, ...]) -> None:
    """Require this node label in every term of the user's affinity, because terms are alternatives."""
    affinity = dict(spec.get("affinity", {}))
    node = dict(affinity.get("nodeAffinity", {}))
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    required = {"key": key, "operator": "In", "values": list(values)}
    terms = node.get(hard, {}).get("nodeSelectorTerms", [{}])
    node[hard] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*term.get("matchExpressions", []), required]} for term in terms
        ]
    }
    spec["affinity"] = {**affinity, "nodeAffinity": node}


def selector(launch: AttemptLaunch, role: str) -> dict[str, str]:
    """The labels that select a plan's pods of one role."""
    return {names.LABEL_PLAN: launch.plan.metadata.name, names.LABEL_ROLE: role}


def labels(launch: AttemptLaunch, role: str) -> dict[str, str]:
    """The labels of a child object."""
    return {
        "app.kubernetes.io/name": "rightsizer",
        "app.kubernetes.io/instance": launch.plan.metadata.name,
        names.LABEL_MANAGED: names.MANAGED,
        **selector(launch, role),
    }
