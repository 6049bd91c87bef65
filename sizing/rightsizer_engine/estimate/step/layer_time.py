"""Seconds of one micro-batch in an average layer, forward and backward, by cause.

Legend: F forward, B backward, H host time for the same work (host_time.py). The GPU waits for launches, and
for the part of a collective that the framework cannot overlap. Recomputed parts count again in B, as a
separate cause.

    waits = (F^4 + H^4)^(1/4) - F

Sharded weights (ZeRO-3, FSDP) are gathered one layer ahead. A share x of the traffic S is never hidden
(copies and the collective's own kernels), the rest competes with the layer's T as a smooth maximum:

    exposed = x S + [ T^3 + ((1-x) S)^3 ]^(1/3) - T
"""

from dataclasses import fields

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.estimate.step.host_time import expert_wait_s, launches_s
from rightsizer_engine.estimate.step.inputs import StepInputs
from rightsizer_engine.estimate.step.layer_compute import backward_time, forward_time, recomputed_shares
from rightsizer_engine.estimate.step.layer_traffic import (
    backward_exposed,
    exposed_collectives_s,
    host_traffic_s,
    shard_traffic_s,
)
from rightsizer_engine.values import immutable


@immutable
class LayerTime:
    """Seconds by cause, forward and backward together, and separate totals of both for the schedules."""

    matmul_s: Array
    attention_s: Array
    elementwise_s: Array
    recompute_s: Array
    tensor_parallel_s: Array
    context_parallel_s: Array
    expert_parallel_s: Array
    sharding_s: Array
    host_s: Array
    offload_s: Array
    forward_s: Array
    backward_s: Array

    @property
    def causes(self) -> dict[str, Array]:
        """The causes; they sum to forward plus backward."""
        sums = ("forward_s", "backward_s")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in sums}


def forward_passes(cases: Cases) -> Array:
    """Forward passes of a micro-batch: a frozen reference model makes one as long as the trained model's."""
    return np.asarray(1.0 + cases.workload.reference_model)


def layer_time(inputs: StepInputs) -> LayerTime:
    """The seconds of an average layer for one micro-batch, a reference model's too."""
    forward, passes = forward_time(inputs), forward_passes(inputs.cases)
    backward = backward_time(inputs, forward)
    recomputed = recomputed_shares(inputs.cases)
    recompute = recomputed.share(forward)
    tp, cp, ep = exposed_collectives_s(inputs, forward)
    repeats = np.where(recomputed.matmul > 0.99, 1.0, 0.0)
    gpu_f = forward.total + tp + cp + ep
    tp_b = tp * backward_exposed(inputs)
    gpu_b = backward.total + recompute + tp_b + 2 * cp + ep + repeats * (tp + cp + ep)
    host_f, host_b = launches_s(inputs.cases, inputs.parameters, recomputed.matmul)
    wait_f = _added_wait(gpu_f, host_f, 4)  # short kernels wait first
    wait_f = wait_f + expert_wait_s(inputs.cases, inputs.work.dense_share, inputs.parameters)
    wait_b = _added_wait(gpu_b, host_b, 4)
    gather, scatter = shard_traffic_s(inputs)
    exposed = inputs.parameters.sharding_exposed
    shard_f = _exposed(gpu_f + wait_f, gather, exposed)
    shard_b = _exposed(gpu_b + wait_b, gather + scatter, exposed)
    weights, activations = host_traffic_s(inputs)
    busy_f, busy_b = gpu_f + wait_f, gpu_b + wait_b
    offload_f = _exposed(busy_f, weights, 0.0) + np.maximum(activations - busy_f, 0.0)
    offload_b = _exposed(busy_b, weights, 0.0) + np.maximum(activations - busy_b, 0.0)
    return LayerTime(
        matmul_s=passes * forward.matmul + backward.matmul,
        attention_s=passes * forward.attention + backward.attention,
        elementwise_s=passes * forward.elementwise + backward.elementwise,
        recompute_s=recompute,
        tensor_parallel_s=(passes + repeats) * tp + tp_b,
        context_parallel_s=(passes + 2 + repeats) * cp,
        expert_parallel_s=(passes + 1 + repeats) * ep,
        sharding_s=passes * shard_f + shard_b,
        host_s=passes * wait_f + wait_b,
        offload_s=passes * offload_f + offload_b,
        forward_s=passes * (gpu_f + wait_f + shard_f + offload_f),
        backward_s=gpu_b + wait_b + shard_b + offload_b,
    )


def _exposed(compute_s: Array, traffic_s: Array, share: float) -> Array:
    if not np.any(traffic_s):
        return np.zeros(())
    overlappable_s = (1 - share) * traffic_s
    return np.asarray(share * traffic_s + _added_wait(compute_s, overlappable_s, 3))


def _added_wait(first_s: Array, second_s: Array, power: int) -> Array:
    """Seconds that a smooth maximum of both adds to the first."""
    top = np.maximum(np.maximum(first_s, second_s), 1e-12)
    low = np.minimum(first_s, second_s) / top
    return np.asarray(top * (1 + low**power) ** (1 / power) - first_s)
