"""One list of all pods: which hold GPUs, which wait for some, and what they request of nodes with GPUs."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from rightsizer_engine.values import immutable
from rightsizer_operator.cluster.client import KubeClient
from rightsizer_operator.cluster.occupancy import BoundPod, bound_pods
from rightsizer_operator.values.devices import Devices
from rightsizer_operator.values.nodes import pod_gpus, pod_slices
from rightsizer_operator.values.pods import node_of
from rightsizer_operator.values.requests import Amounts, Loads, pod_requests

_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


@immutable
class GpuPods:
    """`bound` are the pods that hold GPUs of a node; `waiting` those with GPUs that no node has yet."""

    bound: tuple[BoundPod, ...]
    waiting: tuple[Mapping[str, Any], ...]
    loads: Loads


async def read_gpu_pods(kube: KubeClient, devices: Devices | None, gpu_nodes: Collection[str]) -> GpuPods:
    """List all pods. Only sums are kept of those without GPUs: a cluster has thousands."""
    bound, waiting = list[BoundPod](), list[Mapping[str, Any]]()
    others: defaultdict[str, Counter[str]] = defaultdict(Counter)
    holders: defaultdict[str, list[tuple[int, Amounts]]] = defaultdict(list)
    async for listed in kube.every("/api/v1/pods", fieldSelector=_UNFINISHED):
        pod = devices.held_by(listed) if devices else listed
        spec = pod["spec"]
        node, gpus = node_of(pod), pod_gpus(spec) + pod_slices(spec).total()
        if not node:
            waiting += [pod] if gpus else []
            continue
        bound += bound_pods((pod,))
        if gpus:
            holders[node].append((gpus, pod_requests(spec)))
        elif node in gpu_nodes:
            others[node].update(pod_requests(spec))
    loads = Loads(others=others, holders={k: tuple(v) for k, v in holders.items()}, known=True)
    return GpuPods(bound=tuple(bound), waiting=tuple(waiting), loads=loads)
