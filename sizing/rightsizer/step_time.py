"""Seconds of one optimizer step, by cause: a sum of what `layer_time`, `pipeline` and `communication` derive.

Legend: M micro-batches, T_i seconds of stage i for one micro-batch (its layers, and on the last stage the head and loss),
G seconds of the data-parallel gradient exchange.

    step = M max_i T_i + bubble + transfers + exposed(G) + optimizer + fixed

What depends on the micro-batch and the layer alone is priced once for each distinct (micro-batch, tp, cp, ep, ...) and
gathered, so that a search over a million layouts prices a few hundred layers.
"""

from dataclasses import dataclass, fields

import numpy as np

from rightsizer.cases import Cases
from rightsizer.columns import Array
from rightsizer.communication import Links, group, links, ring_s, send_s
from rightsizer.compute import Kernels, Rates, kernels, rates
from rightsizer.layer_time import HOST_CLASSES, LayerTime, compiled, host_class, layer_time, shard_ranks
from rightsizer.layout import Sharding
from rightsizer.parameters import Parameters, load_step_time
from rightsizer.pipeline import bubble_s, stages
from rightsizer.work import LayerWork, frozen, layer_work
from rightsizer.workload import LossKernel

__all__ = ["StepTime", "estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step by cause, on the pipeline stage that binds; `total_s` is their sum."""

    matmul_s: Array
    attention_s: Array
    elementwise_s: Array
    recompute_s: Array
    loss_s: Array
    tensor_parallel_s: Array
    context_parallel_s: Array
    expert_parallel_s: Array
    sharding_s: Array
    data_parallel_s: Array
    pipeline_bubble_s: Array
    pipeline_transfer_s: Array
    host_s: Array
    offload_s: Array
    optimizer_s: Array

    @property
    def causes(self) -> dict[str, Array]:
        """Every cause by name, without the unit."""
        return {f.name.removesuffix("_s"): getattr(self, f.name) for f in fields(self)}

    @property
    def total_s(self) -> Array:
        """The whole step."""
        return np.asarray(sum(self.causes.values()))


def estimate(cases: Cases, parameters: Parameters | None = None) -> StepTime:
    """The step time of each case; `parameters` default to the fitted ones in the package."""
    p = parameters if parameters is not None else load_step_time()
    work, speed, wires = layer_work(cases), rates(cases, p), links(cases, p)
    kernel = kernels(cases, work, speed, p)
    layer = layer_time(cases, work, kernel, speed, wires, p)
    return _compose(cases, work, kernel, speed, wires, layer, p)


def _compose(
    cases: Cases,
    work: LayerWork,
    kernel: Kernels,
    speed: Rates,
    wires: Links,
    layer: LayerTime,
    p: Parameters,
) -> StepTime:
    """Stages, pipeline and the once-a-step terms around one average layer."""
    dealt, m = stages(cases), cases.layout.micro_batches
    one = layer.forward_s + layer.backward_s
    loss = _loss(cases, work, kernel, speed, p)
    middle, last = dealt.middle_layers * one, dealt.last_layers * one + loss
    last_binds = (last >= middle) | (cases.layout.pp == 1)
    held = m * np.where(last_binds, dealt.last_layers, dealt.middle_layers)
    parts = {name: held * seconds for name, seconds in layer.causes.items()}
    parts["host_s"] = parts["host_s"] + _fixed(cases, p)
    return StepTime(
        **parts,
        loss_s=m * np.where(last_binds, loss, 0.0),
        data_parallel_s=_data_parallel(cases, work, wires, layer, dealt.middle_layers, p),
        pipeline_bubble_s=bubble_s(cases, middle, last),
        pipeline_transfer_s=_transfers(cases, work, wires, p),
        optimizer_s=_optimizer(cases, work, speed, wires, dealt.middle_layers, p),
    )


def _loss(cases: Cases, work: LayerWork, kernel: Kernels, speed: Rates, p: Parameters) -> Array:
    """Head, softmax and cross-entropy of one micro-batch; fused kernels touch the logits less often."""
    asked, default = cases.workload.loss, cases.framework.loss
    how = np.where(asked == LossKernel.AUTO, default, asked)
    share = np.where(
        how == LossKernel.EAGER, np.where(compiled(cases), p.loss_compiled, 1.0), p.loss_compiled
    )
    tokens, vocabulary, _ = work.head_shape
    moved = p.loss_bytes * share * tokens * vocabulary / speed.hbm_bytes_per_s
    used = np.where(cases.architecture.vocab > 1, 1.0, 0.0)
    return np.asarray(used * (kernel.head_forward_s + kernel.head_backward_s + moved))


def _held_weights(cases: Cases, work: LayerWork, layers: Array) -> tuple[Array, Array]:
    """Trained elements on one GPU before sharding: dense ones (with its embedding), routed experts."""
    trained = np.where(frozen(cases), 0.01, 1.0)
    ends = work.embedding_weights / np.where(cases.layout.pp > 1, 2.0, 1.0)
    return (work.dense_weights * layers + ends) * trained, work.expert_weights * layers * trained


def _data_parallel(
    cases: Cases, work: LayerWork, wires: Links, layer: LayerTime, layers: Array, p: Parameters
) -> Array:
    """Exposed seconds of the gradient exchange, outside a window of the last backward (and next forward) passes."""
    layout, framework = cases.layout, cases.framework
    dense, experts = _held_weights(cases, work, layers)
    zero = (layout.sharding == Sharding.ZERO1) | (layout.sharding == Sharding.ZERO2)
    moved = framework.gradient_reduce_bytes * np.where(zero, 1.0, 2.0) + np.where(zero, 2.0, 0.0)
    ranks = group(wires, layout.dp * layout.cp, layout.tp)
    copies = np.maximum(layout.dp * layout.cp * layout.tp / np.maximum(layout.ep * layout.expert_tp, 1), 1)
    spread = group(wires, copies, np.maximum(layout.ep, 1))
    traffic = ring_s(dense * moved, ranks, wires, p) + np.where(
        experts > 0, ring_s(experts * moved, spread, wires, p), 0.0
    )
    each = (layout.sharding == Sharding.ZERO2) & (framework.reduces_every_micro_batch > 0)
    traffic = traffic * np.where(each, layout.micro_batches, 1)
    traffic = np.where(layout.sharding >= Sharding.ZERO3, 0.0, traffic)
    chunks = 1 + (layout.pp - 1) * (np.maximum(layout.vpp, 1) - 1) / np.maximum(layout.vpp, 1)
    passes = np.minimum(chunks, np.maximum(layout.micro_batches, 1))
    window = layers * (layer.backward_s + np.where(zero, layer.forward_s, 0.0)) * passes
    hidden = p.data_exposed * traffic + np.maximum(
        (1 - p.data_exposed) * traffic - p.data_window * window, 0.0
    )
    return np.asarray(np.where(framework.overlaps_gradient_reduce > 0, hidden, traffic))


def _transfers(cases: Cases, work: LayerWork, wires: Links, p: Parameters) -> Array:
    """Exposed seconds of sending activations forward and gradients back between stages."""
    layout = cases.layout
    v = np.maximum(layout.vpp, 1)
    crosses = layout.tp * layout.cp * layout.dp >= wires.reach_gpus
    once = send_s(work.hidden_bytes / layout.tp, crosses, wires, p)
    count = layout.micro_batches * v + layout.pp - 1
    return np.asarray(np.where(layout.pp > 1, 2.0 * count * once * p.transfer_exposed, 0.0))


def _optimizer(
    cases: Cases, work: LayerWork, speed: Rates, wires: Links, layers: Array, p: Parameters
) -> Array:
    """Reading and writing the states once, and summing a tied embedding's two gradients."""
    dense, experts = _held_weights(cases, work, layers)
    shards = np.where(cases.layout.sharding >= Sharding.ZERO1, shard_ranks(cases), 1)
    states = p.optimizer_bytes * (dense + experts) / shards / speed.hbm_bytes_per_s
    tied = (cases.layout.pp > 1) & (cases.architecture.tied_embeddings > 0) & ~frozen(cases)
    shared = np.where(tied, 4.0 * work.embedding_weights, 0.0)
    split = cases.layout
    far = split.dp * split.tp * split.pp * split.cp > wires.reach_gpus
    return np.asarray(states + shared / np.where(far, wires.between_bytes_per_s, wires.inside_bytes_per_s))


def _fixed(cases: Cases, p: Parameters) -> Array:
    """Host seconds once a step: data, clipping, the optimizer's launches."""
    return p.keyed("step_fixed_s", HOST_CLASSES)[host_class(cases)]
