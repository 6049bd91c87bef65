"""The workers' requests of CPU and memory, by their share of the node's GPUs. Pure.

A request must never keep a pod away from GPUs that are free for it: it is part of what the nodes have left
(`values/requests.py`), and at most what quotas and the plan's queue leave. It is left out where that is
unknown.
"""

from dataclasses import replace

from rightsizer_operator.manifests.pod_spec import AttemptLaunch, user_spec
from rightsizer_operator.reconcile.size import node_requirements
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.names import CONTAINER
from rightsizer_operator.values.requests import Amounts, least, pod_requests

_REQUESTED = 0.8
"""Of a pod's share of its node. The rest is for pods that come later: rendezvous pods of other plans, updates
of DaemonSets, somebody who debugs. A guess."""
_SHM = 0.5
"""Of a pod's share of its node's memory: what Linux gives /dev/shm of a machine's (tmpfs(5))."""


def with_share(state: ReconcileState, launch: AttemptLaunch) -> AttemptLaunch:
    """The launch with what its workers request, and may write to /dev/shm."""
    inventory, gpus = state.snapshot.inventory, launch.gpus_per_pod
    requirements = replace(node_requirements(state.plan), types=(launch.gpu_type,))
    share = inventory.share(requirements, gpus)
    offers = [{name: gpus * amount for name, amount in offer.items()} for offer in _offers(state, launch)]
    pod = least({name: _REQUESTED * amount for name, amount in share.items()}, *offers)
    template = user_spec(launch)
    beside = [each for each in template.get("containers") or () if each.get("name") != CONTAINER]
    others = pod_requests({**template, "containers": beside})
    requests = {name: amount - others[name] for name, amount in pod.items() if amount > others[name]}
    return replace(launch, requests=requests, shm_bytes=int(_SHM * share.get("memory", 0.0)))


def _offers(state: ReconcileState, launch: AttemptLaunch) -> list[Amounts]:
    """The most for each GPU that the namespace allows, and the queue if the plan waits in one."""
    snapshot, largest = state.snapshot, max(launch.layout.gpus, launch.reserve_gpus)
    offers: list[Amounts] = [snapshot.allowance.per_gpu(largest) if snapshot.allowance else {}]
    if snapshot.queue is not None:
        borrows = largest > (snapshot.queue.nominal_gpus or 0)  # others' quotas may have other proportions
        offers.append({} if borrows else snapshot.queue.part)
    return offers
