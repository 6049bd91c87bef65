"""What an administrator may set."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rightsizer.resize.types import Mode, Pressure
from rightsizer.values import immutable

__all__ = ["Settings"]


@immutable
class Settings:
    """Limits and habits of one operator.

    `dead_node_s`: silence after which a node counts as dead, so that pods of plans that are stuck on it are
    removed; longer than the rendezvous' own patience (three keep-alives of 5 s), which has then gone on
    without them. `evict_s`: how long a worker stays bound to a node that does not answer: longer than the
    60 s that a kubelet may take to find an API server again that was away (client-go's reflector: 30 s
    between tries, and jitter as long), or that would cost healthy workers. `job_ttl_s`: how long a finished
    Job and its logs stay. `inter_node_gbps`: gigabytes per second between nodes, per GPU and direction,
    where it is known and the plan does not say. `refresh_s`: how often everything is read anew, whatever the
    watches have told.

    `network_policy`: whether each plan's pods get network policies. `metrics_from`: who may read the workers'
    metrics, as NetworkPolicyPeers; everybody where there are none.

    What resizes rest on: the workers are asked every `measure_s` and judged every `decide_s`, over at least
    `window_s`, not in the first `warm_up_s` of a size; at most one resize in `cool_down_s`. `restart_s` is
    what one is expected to cost. One whose workers are not all there after `resize_s` has failed.
    """

    dead_node_s: float = 40.0
    evict_s: int = 90
    job_ttl_s: int = 604_800
    inter_node_gbps: float | None = None
    rendezvous_image: str = ""
    observe_s: float = 60.0
    refresh_s: float = 120.0
    dry_run: bool = False
    retry_s: float = 30.0
    measure_s: float = 15.0
    decide_s: float = 60.0
    window_s: float = 600.0
    warm_up_s: float = 300.0
    cool_down_s: float = 3600.0
    restart_s: float = 120.0
    resize_s: float = 600.0
    give_back: Pressure = Pressure.ON_PRESSURE
    network_policy: bool = True
    metrics_from: tuple[Mapping[str, Any], ...] = ()
    caps: Mapping[str, Mode] = field(default_factory=dict)

    def cap(self, namespace: str) -> Mode:
        """The most that may be done to plans of a namespace."""
        return self.caps.get(namespace, self.caps.get("", Mode.AUTO))
