"""The operator's settings."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rightsizer_engine.resize.types import Mode, Pressure
from rightsizer_engine.values import immutable
from rightsizer_launch.running.limits import PRIOR_RESTART_S


@immutable
class OperatorSettings:
    """The settings of one operator.

    `dead_node_s`: a node that has not been ready for this long is dead, and terminating workers on it are
    force-deleted. Longer than the rendezvous' keep-alive timeout (three of 5 s), after which the other
    workers re-form without them. `evict_s`: how long a worker stays bound to a node that does not respond.
    Longer than the 60 s that a kubelet may need to reconnect to a restarted API server (client-go's
    reflector: 30 s between tries, with as much jitter), so that healthy workers are not evicted.
    `job_ttl_s`: how long a finished Job and its logs are kept. `inter_node_gbps`: GB/s between nodes, per GPU
    and direction, for plans that do not set it. `refresh_s`: the period of a full relist, in case
    watches missed an event. `sizing_s`: the most processor time of one search for a size; a plan that takes
    longer is refused.

    `device_class`: the DeviceClass of which pods claim their GPUs; empty: they request the resource of a
    device plugin.

    `network_policy`: whether each plan's pods get network policies. `metrics_from`: the NetworkPolicyPeers
    that may read the workers' metrics; empty: all.

    Resizing: workers are scraped every `measure_s`. A resize is considered every `decide_s`, over a window of
    at least `window_s` that excludes the first `warm_up_s` of a size, and at most once in `cool_down_s`.
    `look_s` replaces the training before the first look that a staged plan states.
    `restart_s` is the expected time of a restart until one is measured. A resize has failed if its workers
    are not all ready after `resize_s`.
    """

    dead_node_s: float = 40.0
    evict_s: int = 90
    job_ttl_s: int = 604_800
    sizing_s: float = 30.0
    inter_node_gbps: float | None = None
    rendezvous_image: str = ""
    device_class: str = ""
    observe_s: float = 60.0
    refresh_s: float = 120.0
    dry_run: bool = False
    retry_s: float = 30.0
    measure_s: float = 15.0
    decide_s: float = 60.0
    window_s: float = 600.0
    warm_up_s: float = 300.0
    cool_down_s: float = 3600.0
    restart_s: float = PRIOR_RESTART_S
    resize_s: float = 600.0
    look_s: float | None = None
    give_back: Pressure = Pressure.ON_PRESSURE
    network_policy: bool = True
    metrics_from: tuple[Mapping[str, Any], ...] = ()
    caps: Mapping[str, Mode] = field(default_factory=dict)

    def cap(self, namespace: str) -> Mode:
        """The strongest elasticity mode that plans of a namespace may use."""
        return self.caps.get(namespace, self.caps.get("", Mode.AUTO))
