"""The pods of an attempt: torchrun's environment, the framework's flags, the user's template. Pure."""

import hashlib
import json
from dataclasses import field, replace
from typing import Any

from rightsizer.domain.layout import Layout
from rightsizer.domain.workload import Workload
from rightsizer.units import parse_duration_s
from rightsizer.values import immutable
from rightsizer_api import expand, sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.resources import ElasticityMode
from rightsizer_launch import frameworks
from rightsizer_launch.frameworks import Flags
from rightsizer_launch.torchrun import DEFAULT_PORT, Torchrun, environment, program, program_arguments
from rightsizer_launch.worker import progress
from rightsizer_launch.worker.restart_monitor import ENV_RESTART_WITHIN_S
from rightsizer_operator.manifests.strategic_merge import merged_template
from rightsizer_operator.values import names
from rightsizer_operator.values.kueue import Queue
from rightsizer_operator.values.settings import Settings

__all__ = [
    "Launch",
    "digest",
    "elastic",
    "evicted",
    "labels",
    "selector",
    "sizes",
    "template",
    "worded",
]

Object = dict[str, Any]

_RUN_DIRECTORY = "/var/run/rightsizer"
_SETTINGS = "/etc/rightsizer"
_KEY_DIRECTORY = "/etc/rightsizer-key"
_TERMINATION_LOG = "/dev/termination-log"
_SHUTDOWN_S = 20  # what the agents take beside the workers' own grace
_ELASTIC_FRAMEWORKS = ("ddp", "custom")  # the others have the number of ranks in their flags
_CHANGED_BY_RESIZE = ("RIGHTSIZER_LAYOUT_DP", "RIGHTSIZER_LAYOUT_MICRO_BATCHES")
_NO_ANSWER = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_LAYOUT_WORDS_OF_SIZE = ("gpus", "dp", "microBatches", "shardGroup")


@immutable
class Launch:
    """All that an attempt's objects are made of. `batch` is sequences of a step; `products` node labels.

    `workload` is what is trained with that batch, `flags` the layout in the framework's own words. `queue` is
    the queue that it waits in, where Kueue serves it.
    """

    plan: TrainingPlan
    owner_uid: str
    attempt: int
    layout: Layout
    batch: int
    gpus_per_pod: int
    gpu_type: str
    interval_s: float
    step_s: float
    workload: Workload
    flags: Flags
    products: tuple[str, ...] = ()
    queue: Queue | None = None
    settings: Settings = field(default_factory=Settings)

    @property
    def pods(self) -> int:
        """Worker pods."""
        return self.layout.gpus // self.gpus_per_pod


def elastic(plan: TrainingPlan, layout: Layout, queue: Queue | None) -> bool:
    """Whether the number of workers may change in place: nothing that the workers were told depends on it.

    Not in a queue with a topology: Kueue places each size as a whole, and pods that run cannot move.
    """
    spread = layout.dp == layout.gpus and layout.ep == 1 and not layout.shard_group
    return spread and bool(sizes(plan)) and not (queue and queue.levels)


def sizes(plan: TrainingPlan) -> range:
    """The numbers of GPUs that a plan may have in place, if its layout lets it; none where it never can."""
    words = (*plan.spec.launch.command, *plan.spec.launch.args)
    told = any("{layout." + name + "}" in word for word in words for name in _LAYOUT_WORDS_OF_SIZE)
    off = plan.spec.elasticity.mode is ElasticityMode.OFF
    if off or told or plan.spec.launch.framework not in _ELASTIC_FRAMEWORKS:
        return range(0)
    elasticity, resources = plan.spec.elasticity, plan.spec.resources
    fewest = elasticity.min_gpus or resources.min_gpus
    return range(fewest, 1 + max(fewest, elasticity.max_gpus or resources.max_gpus or 0))


def digest(launch: Launch) -> str:
    """What the workers run, as a hash that an elastic resize does not change, nor another attempt."""
    still = replace(launch, attempt=0)
    pod = template(still, on=())
    if elastic(launch.plan, launch.layout, launch.queue):
        variables = pod["spec"]["containers"][0]["env"]
        changed = [*_CHANGED_BY_RESIZE]
        checkpoint = launch.plan.spec.launch.checkpoint
        if checkpoint and checkpoint.interval == "auto":
            changed.append(progress.ENV_CHECKPOINT_INTERVAL_S)
        pod["spec"]["containers"][0]["env"] = [v for v in variables if v["name"] not in changed]
    text = json.dumps(pod, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def template(launch: Launch, *, on: tuple[str, ...]) -> Object:
    """The workers' pods, the user's template merged in."""
    own = labels(launch, names.WORKER) | {names.LABEL_ATTEMPT: str(launch.attempt)}
    spec: Object = {
        "containers": [_trainer(launch)],
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": int(_grace_s(launch)) + _SHUTDOWN_S,
        "tolerations": [
            *evicted(launch),
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "topologySpreadConstraints": [_spread(launch)],
        "volumes": [
            {"name": "rightsizer-run", "emptyDir": {}},
            _key_volume(launch),
            *_settings_volume(launch),
        ],
    }
    asked = launch.plan.spec.launch.pod_template
    theirs = asked.model_dump(by_alias=True, exclude_none=True) if asked else None
    merged = merged_template({"metadata": {"labels": own}, "spec": spec}, theirs)
    if on:
        _require(merged["spec"], names.PRODUCT_LABEL, on)
    return merged


def _trainer(launch: Launch) -> Object:
    asked = launch.plan.spec.launch
    container: Object = {
        "name": names.CONTAINER,
        "image": asked.image,
        "command": ["python", "-m", "rightsizer_launch.worker.entrypoint"],
        "args": _arguments(launch),
        "env": _variables(launch),
        "ports": [{"name": "metrics", "containerPort": names.METRICS_PORT, "protocol": "TCP"}],
        "resources": {"limits": {names.GPU_RESOURCE: launch.gpus_per_pod}},
        "terminationMessagePath": _TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "rightsizer-run", "mountPath": _RUN_DIRECTORY},
            {"name": "rightsizer-key", "mountPath": _KEY_DIRECTORY, "readOnly": True},
            *_settings_mount(launch),
        ],
    }
    if asked.working_dir:
        container["workingDir"] = asked.working_dir
    return container


def _arguments(launch: Launch) -> list[str]:
    """The script and its arguments; a command with the layout's placeholders says it all itself."""
    asked, workload = launch.plan.spec.launch, launch.workload
    words = (*asked.command, *asked.args)
    own = not any("{layout." in word for word in words)
    others = {
        "plan.name": launch.plan.metadata.name,
        "checkpoint.path": asked.checkpoint.path if asked.checkpoint else "",
        "checkpoint.intervalSteps": max(1, round(_interval_s(launch) / launch.step_s)),
        "workload.sequenceLength": workload.sequence_tokens,
        "workload.globalBatchSequences": workload.global_batch_sequences,
        "workload.steps": int(workload.steps),
    }
    expanded = (*expand(words, launch.layout, others), *(launch.flags.arguments if own else ()))
    return list(program_arguments(program(expanded)))


def _variables(launch: Launch) -> list[Object]:
    """Environment of a worker: the pod's address first, which others refer to; the user's last."""
    asked = launch.plan.spec.launch
    values = {
        **launch.flags.environment,
        **environment(_torchrun(launch)),
        "PYTHONUNBUFFERED": "1",
        progress.ENV_RUN_DIRECTORY: _RUN_DIRECTORY,
        progress.ENV_ATTEMPT: str(launch.attempt),
        progress.ENV_RENDEZVOUS_KEY_FILE: f"{_KEY_DIRECTORY}/{names.KEY}",
        progress.ENV_METRICS_PORT: str(names.METRICS_PORT),
        progress.ENV_METRICS_ADDRESS: "0.0.0.0",  # noqa: S104 -- a pod's own address
        progress.ENV_RESTART_LIMIT: str(asked.restarts.limit),
        ENV_RESTART_WITHIN_S: f"{parse_duration_s(asked.restarts.within):g}",
    }
    if asked.checkpoint:
        values[progress.ENV_CHECKPOINT_PATH] = asked.checkpoint.path
        values[progress.ENV_CHECKPOINT_INTERVAL_S] = f"{_interval_s(launch):g}"
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    stated = [each.model_dump(by_alias=True, exclude_none=True) for each in asked.env]
    taken = {each["name"] for each in stated}
    ours = [{"name": name, "value": value} for name, value in values.items() if name not in taken]
    return [address, *ours, *stated]


def _torchrun(launch: Launch) -> Torchrun:
    plan, in_place = launch.plan, elastic(launch.plan, launch.layout, launch.queue)
    fewest = plan.spec.elasticity.min_gpus or plan.spec.resources.min_gpus
    most = plan.spec.elasticity.max_gpus or plan.spec.resources.max_gpus or launch.layout.gpus
    low = max(1, -(-fewest // launch.gpus_per_pod)) if in_place else launch.pods
    high = max(launch.pods, most // launch.gpus_per_pod) if in_place else launch.pods
    return Torchrun(
        name=launch.owner_uid,
        attempt=launch.attempt,
        endpoint=f"{names.rendezvous_name(plan.metadata.name)}.{plan.metadata.namespace}.svc:{DEFAULT_PORT}",
        min_nodes=min(low, launch.pods),
        max_nodes=high,
        workers_per_node=launch.gpus_per_pod,
        local_address="$(POD_IP)",
        last_call_s=5,
        max_restarts=1_000_000,
        shutdown_s=int(_grace_s(launch)),
    )


def worded(plan: TrainingPlan, layout: Layout, *, batch: int) -> tuple[Workload, Flags]:
    """What a plan trains with a batch of so many sequences, and the layout in its framework's own words."""
    resolved = sizing.resolve(plan)
    workload = replace(resolved.workload, global_batch_sequences=batch)
    framework = plan.spec.launch.framework
    flags = frameworks.flags(
        framework, layout, workload, architecture=resolved.architecture, directory=_SETTINGS
    )
    return workload, flags


def _interval_s(launch: Launch) -> float:
    checkpoint = launch.plan.spec.launch.checkpoint
    if checkpoint is None or checkpoint.interval == "auto":
        return max(10.0, round(launch.interval_s))
    return parse_duration_s(checkpoint.interval)


def _grace_s(launch: Launch) -> float:
    checkpoint = launch.plan.spec.launch.checkpoint
    return parse_duration_s(checkpoint.grace) if checkpoint else 30.0


def _key_volume(launch: Launch) -> Object:
    name = names.key_name(launch.plan.metadata.name, launch.attempt, launch.owner_uid)
    return {"name": "rightsizer-key", "secret": {"secretName": name}}


def _settings_volume(launch: Launch) -> list[Object]:
    name = names.job_name(launch.plan.metadata.name, launch.attempt)
    return [{"name": "rightsizer-settings", "configMap": {"name": name}}] if launch.flags.files else []


def _settings_mount(launch: Launch) -> list[Object]:
    mount = {"name": "rightsizer-settings", "mountPath": _SETTINGS, "readOnly": True}
    return [mount] if launch.flags.files else []


def _spread(launch: Launch) -> Object:
    """Pods that are less than a node go to different nodes where there are some: that is what was priced."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(launch, names.WORKER)},
    }


def evicted(launch: Launch) -> list[Object]:
    """Tolerations that say how long a pod stays on a node that has stopped answering; the user's own win."""
    template = launch.plan.spec.launch.pod_template
    asked = template.model_dump(by_alias=True, exclude_none=True) if template else {}
    theirs = [t for t in asked.get("spec", {}).get("tolerations", ()) if t.get("key") in _NO_ANSWER]
    said = {toleration["key"] for toleration in theirs}
    seconds = launch.settings.evict_s
    ours = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return [*theirs, *({"key": key, **ours} for key in _NO_ANSWER if key not in said)]


def _require(spec: Object, key: str, values: tuple[str, ...]) -> None:
    """Only nodes with this label: said in every term of the user's own affinity (terms are alternatives)."""
    affinity = dict(spec.get("affinity", {}))
    node = dict(affinity.get("nodeAffinity", {}))
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    wanted = {"key": key, "operator": "In", "values": list(values)}
    terms = node.get(hard, {}).get("nodeSelectorTerms", [{}])
    node[hard] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*term.get("matchExpressions", []), wanted]} for term in terms
        ]
    }
    spec["affinity"] = {**affinity, "nodeAffinity": node}


def selector(launch: Launch, role: str) -> dict[str, str]:
    """The labels by which a plan's pods of one role are found."""
    return {names.LABEL_PLAN: launch.plan.metadata.name, names.LABEL_ROLE: role}


def labels(launch: Launch, role: str) -> dict[str, str]:
    """The labels of a child."""
    return {
        "app.kubernetes.io/name": "rightsizer",
        "app.kubernetes.io/instance": launch.plan.metadata.name,
        names.LABEL_MANAGED: names.MANAGED,
        **selector(launch, role),
    }
