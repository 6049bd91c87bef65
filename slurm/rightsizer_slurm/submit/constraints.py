"""The part of a cluster that a job may have by its own options: nodes, features, memory, reservation. Pure.

What is not understood raises `NotUnderstoodError`; such a job runs as it was written.
"""

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import replace

from rightsizer_api.sizing import ResolvedPlan
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_slurm.cluster.hostlist import HostListError, expand
from rightsizer_slurm.cluster.jobs import gpu_items, gres_gpus, other_gres
from rightsizer_slurm.cluster.snapshot import Reservation, SlurmCluster, SlurmNode
from rightsizer_slurm.submit.placement import Placement
from rightsizer_slurm.submit.protocol import SizingRequest

_MB = 2.0**20
_FEATURES = re.compile(r"[\w.-]+((&[\w.-]+)*|(\|[\w.-]+)*)")
_FROM_NOW = re.compile(r"now(?:\+(\d{1,9})(seconds?|minutes?|hours?|days?|weeks?)?)?")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class NotUnderstoodError(RightsizerError):
    """An option that cannot be taken into account."""


def narrowed(cluster: SlurmCluster, request: SizingRequest) -> SlurmCluster:
    """The nodes that the request allows, with the cores and GPUs for which they have memory."""
    named, excluded = _hosts("--nodelist", request.req_nodes), _hosts("--exclude", request.exc_nodes)
    unknown = named - {node.name for node in cluster.nodes}
    if unknown:
        raise NotUnderstoodError(f"--nodelist {request.req_nodes}: no node {min(unknown)}")
    allowed = [
        node for node in cluster.nodes if node.name not in excluded and (not named or node.name in named)
    ]
    allowed = _featured(allowed, request.features)
    needed = {item.split(":")[0] for item in other_gres(request.gres)}
    allowed = [node for node in allowed if needed.issubset(node.gres)]
    allowed = _reserved(allowed, cluster, request.reservation)
    kept = tuple(one for node in allowed if (one := _with_memory(node, request)) is not None)
    if any(node.gpus for node in cluster.nodes) and not any(node.gpus for node in kept):
        raise InputError(_options(request), value=None, remedy="leaves no node with GPUs")
    return replace(cluster, nodes=kept)


def _options(request: SizingRequest) -> str:
    memory = (request.node_mb, request.core_mb, request.gpu_memory)
    given = {
        "--nodelist": request.req_nodes,
        "--exclude": request.exc_nodes,
        "--constraint": request.features,
        "--gres": other_gres(request.gres),
        "--mem": any(memory),
        "--mincpus": request.node_cpus,
        "--reservation": request.reservation,
    }
    return ", ".join(name for name, value in given.items() if value)


def _hosts(option: str, text: str) -> frozenset[str]:
    try:
        return frozenset(expand(text))
    except HostListError:
        raise NotUnderstoodError(f"{option} {text}: is not a list of nodes") from None


def _featured(nodes: list[SlurmNode], features: str) -> list[SlurmNode]:
    """The nodes with all of a&b&c, or any of a|b|c."""
    if not features:
        return nodes
    if not _FEATURES.fullmatch(features):
        raise NotUnderstoodError(f"--constraint {features}: only a&b and a|b are understood")
    names = re.split(r"[&|]", features)
    matches = any if "|" in features else all
    found = [node for node in nodes if matches(name in node.features for name in names)]
    if not found:
        raise NotUnderstoodError(f"--constraint {features}: no node has it now")
    return found


def _reservation(cluster: SlurmCluster, name: str) -> Reservation | None:
    if not name:
        return None
    found = next((one for one in cluster.reservations if one.name == name), None)
    if found is None or not found.nodes:
        raise NotUnderstoodError(f"--reservation {name}: no such reservation of nodes")
    cores = sum(node.cpus for node in cluster.nodes if node.name in found.nodes)
    if found.cores < cores:
        raise NotUnderstoodError(f"--reservation {name}: it has parts of nodes")
    return found


def _reserved(nodes: list[SlurmNode], cluster: SlurmCluster, name: str) -> list[SlurmNode]:
    """The nodes of the job's reservation; without one, those of active reservations count as down."""
    mine = _reservation(cluster, name)
    if mine is not None:
        inside = [node for node in nodes if node.name in mine.nodes]
        return [replace(node, up=node.up or node.reserved) for node in inside]
    others = {node for one in cluster.reservations if one.active for node in one.nodes}
    return [replace(node, up=False) if node.name in others else node for node in nodes]


def _with_memory(node: SlurmNode, request: SizingRequest) -> SlurmNode | None:
    """The node with the cores and GPUs that its memory allows; None if it does not fit the request."""
    memory_mb = node.memory_bytes / _MB
    if request.node_cpus and node.cpus < request.node_cpus:
        return None
    if not memory_mb:
        return node  # RealMemory is not set, so Slurm does not check it
    cpus, gpus = node.cpus, node.gpus
    if request.core_mb:
        cpus = min(cpus, int(memory_mb // request.core_mb))
    if request.gpu_memory:
        _, gpu_mb = gres_gpus(request.gpu_memory)
        gpus = min(gpus, int(memory_mb // max(1, gpu_mb)))
    if (request.node_mb or 0) > memory_mb or not cpus or (node.gpus and not gpus):
        return None
    return replace(node, cpus=cpus, gpus=gpus, gpus_used=min(gpus, node.gpus_used))


def time_left_s(cluster: SlurmCluster, request: SizingRequest, now: dt.datetime) -> Mapping[str, float]:
    """Seconds until the job must have ended, by its option."""
    left = {}
    mine = _reservation(cluster, request.reservation)
    if mine is not None and mine.ends_at is not None:
        begins = max(now, mine.starts_at or now)
        left[f"reservation {mine.name}"] = (mine.ends_at - begins).total_seconds()
    if request.deadline:
        left[f"--deadline {request.deadline}"] = _deadline_s(request.deadline, now)
    return left


def _deadline_s(text: str, now: dt.datetime) -> float:
    match = _FROM_NOW.fullmatch(text)
    if match:
        return float(match[1] or 0) * _UNIT_S[(match[2] or "s")[0]]
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        raise NotUnderstoodError(f"--deadline {text}: write now+5hours or 2027-03-01T08:00") from None
    return (at.astimezone() - now).total_seconds()


def check_gpus(request: SizingRequest) -> None:
    """InputError if the request allows no GPU; NotUnderstoodError if it names several types."""
    stated = {"--gpus-per-node": gpu_items(request.gres), "--gpus": gpu_items(request.tres_per_job)}
    for option, items in stated.items():
        if items and not sum(count for _, count in items):
            raise InputError(option, value=0, remedy="allows no GPU; leave it out, or the comment")
    kinds = {kind for items in stated.values() for kind, _ in items if kind}
    if len(kinds) > 1:
        raise NotUnderstoodError(f"GPUs of several types: {', '.join(sorted(kinds))}")


def with_spec(plan: ResolvedPlan, **changes: object) -> ResolvedPlan:
    """The plan with other resources or another deadline. What was looked up for it stays as it is."""
    spec = plan.plan.spec.model_copy(update=changes)
    return replace(plan, plan=plan.plan.model_copy(update={"spec": spec}))


def with_tasks(plan: ResolvedPlan, request: SizingRequest, *, gpus: int | None = None) -> ResolvedPlan:
    """The plan with at least a GPU for each task of a node, or with exactly `gpus`."""
    resources = plan.plan.spec.resources
    least = max(resources.min_gpus, request.node_tasks or 1)
    most = resources.max_gpus if resources.gpus is None else resources.gpus
    if most is not None and most < (gpus or least):
        raise NotUnderstoodError(f"the tasks need {gpus or least} GPUs, the plan allows {most}")
    changed = (
        {"min_gpus": least} if gpus is None else {"gpus": gpus, "min_gpus": min(gpus, resources.min_gpus)}
    )
    return with_spec(plan, resources=resources.model_copy(update=changed))


def check_tasks(placement: Placement, request: SizingRequest) -> None:
    """NotUnderstoodError unless the tasks of a node share its GPUs evenly, and each named node is used."""
    nodes, per_node = placement.nodes, request.node_tasks
    if per_node is None and request.num_tasks:
        per_node, rest = divmod(request.num_tasks, nodes)
        if rest:
            raise NotUnderstoodError(f"--ntasks {request.num_tasks} on {nodes} nodes")
    if per_node and placement.node_gpus % per_node:
        raise NotUnderstoodError(f"{per_node} tasks on each node beside {placement.node_gpus} GPUs")
    named = len(_hosts("--nodelist", request.req_nodes))
    if named > nodes:
        raise NotUnderstoodError(f"--nodelist {request.req_nodes}: {nodes} nodes are enough")
