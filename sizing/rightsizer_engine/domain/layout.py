"""The parallel layout of a job: dp x tp x pp(vpp) x cp x ep x sharding x micro-batch x recompute."""

import enum

from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.values import immutable


class Sharding(enum.IntEnum):
    """States that data-parallel ranks shard: ZeRO-1 the optimizer's, -2 gradients too, -3 (FSDP) weights too.

    HSDP is ZeRO-3 inside a shard group, replicated across groups.
    """

    NONE = 0
    ZERO1 = 1
    ZERO2 = 2
    ZERO3 = 3
    HSDP = 4


class Offload(enum.IntFlag):
    """The states in host memory."""

    NONE = 0
    OPTIMIZER = 1
    PARAMETERS = 2
    ACTIVATIONS = 4


@immutable
class Layout:
    """One way to split the work; gpus = dp * tp * pp * cp. Experts are split over `ep` ranks of dp * cp * tp.

    `shard_group` ranks share the sharded states (0 = all of dp * cp). `micro_batch` is sequences per forward
    pass; `micro_batches` forward passes make a step on every pipeline. `recompute_layers` are a stage's
    (0 = all). `offload_percent` of the activations leave the GPU where activations are offloaded (0 = all).
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int = 1
    sequence_parallel: bool = False
    sharding: Sharding = Sharding.NONE
    shard_group: int = 0
    micro_batch: int = 1
    micro_batches: int = 1
    recompute: Recompute = Recompute.NONE
    recompute_layers: int = 0
    offload: Offload = Offload.NONE
    offload_percent: int = 0

    @property
    def gpus(self) -> int:
        """World size."""
        return self.dp * self.tp * self.pp * self.cp
