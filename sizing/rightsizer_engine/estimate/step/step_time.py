"""Seconds of one optimizer step, by cause.

Legend: M micro-batches, T_i seconds of stage i for one micro-batch (its layers, and on the last stage the
head and loss), G seconds of the data-parallel gradient exchange, w nodes.

    step = [ M max_i T_i + bubble + transfers + exposed(G) + optimizer + fixed ] (1 + j log2 w)

Terms that depend only on the micro-batch and the layer are priced once per distinct (micro-batch, tp, cp,
ep, ...) and gathered, so a search over a million layouts prices a few hundred layers.
"""

from dataclasses import fields

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.layout import Offload, Sharding
from rightsizer_engine.domain.workload import LossKernel, Precision
from rightsizer_engine.estimate.collectives import (
    expert_replicas,
    expert_shard_ranks,
    group,
    ring_s,
    send_s,
    shard_ranks,
)
from rightsizer_engine.estimate.parameters import Parameters, load_step_time
from rightsizer_engine.estimate.step.host_time import HOST_CLASSES, host_class
from rightsizer_engine.estimate.step.inputs import StepInputs, step_inputs
from rightsizer_engine.estimate.step.layer_compute import accumulated_s, compiled
from rightsizer_engine.estimate.step.layer_time import LayerTime, forward_passes, layer_time
from rightsizer_engine.estimate.step.layer_traffic import host_link_bytes_per_s
from rightsizer_engine.estimate.step.schedule import bubble_s, stage_layers
from rightsizer_engine.estimate.work import BF16_BYTES, frozen, trained_ends
from rightsizer_engine.values import immutable

_HOST_UPDATES_PER_S = 3.9e9
"""Weights that a node's processors update a second: 10e9 in 2.57 s (arXiv:2101.06840 Table 4, CPU-Adam)."""
_TORCH_HOST_UPDATES_PER_S = 6.8e8
"""The same with torch's own Adam on the processors: 10e9 in 14.76 s (the same table)."""
_HOST_PCIE_BYTES_PER_S = (16e9, 32e9, 64e9)
_HOST_MEMORY_RATIO = (1.0, 1.6, 2.4)
"""Memory rates of hosts with PCIe 3, 4 and 5 over that of the table's DGX-2, which bound the updates: 12
channels of DDR4-2666, 16 of DDR4-3200, 16 of DDR5-4800 (data sheets). Workstations have fewer channels."""

_FUSED_LOSS = tuple(HOST_CLASSES.index(name) for name in ("core", "fsdp1"))
_EAGER_LOSS = tuple(HOST_CLASSES.index(name) for name in ("megatron",))


@immutable
class StepTime:
    """Seconds of one optimizer step by cause, on the slowest pipeline stage; `total_s` is their sum."""

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
    jitter_s: Array

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
    return price(step_inputs(cases, parameters if parameters is not None else load_step_time()))


def price(inputs: StepInputs, layer: LayerTime | None = None) -> StepTime:
    """Stages, pipeline and the terms once per step, around one average layer (priced here unless given)."""
    layer = layer or layer_time(inputs)
    stage, m = stage_times(inputs, layer), inputs.cases.layout.micro_batches
    parts = {name: m * stage.binding_layers * seconds for name, seconds in layer.causes.items()}
    parts["host_s"] = parts["host_s"] + stage.fixed_s
    parts |= {"loss_s": m * stage.loss_s, "pipeline_bubble_s": stage.bubble_s}
    parts |= _replica_causes(inputs, stage)
    return StepTime(**parts, jitter_s=_jitter(inputs) * np.asarray(sum(parts.values())))


@immutable
class StageTimes:
    """Times that do not depend on replicas and micro-batches (unless ZeRO-3 shards layers).

    Seconds of an average layer; layers and loss of the slowest stage for one micro-batch; `fixed_s` and
    `bubble_s` once per step. Bytes and elements are as in LayerWork.
    """

    forward_s: Array
    backward_s: Array
    middle_layers: Array
    binding_layers: Array
    loss_s: Array
    fixed_s: Array
    bubble_s: Array
    hidden_bytes: Array
    dense_weights: Array
    expert_weights: Array
    embedding_weights: Array


def stage_times(inputs: StepInputs, layer: LayerTime) -> StageTimes:
    """The stages' seconds from an average layer's."""
    cases, work = inputs.cases, inputs.work
    layers, stage, loss = stage_layers(cases), layer.forward_s + layer.backward_s, _loss(inputs)
    middle, last = layers.middle_layers * stage, layers.last_layers * stage + loss
    last_binds = (last >= middle) | (cases.layout.pp == 1)
    return StageTimes(
        forward_s=layer.forward_s,
        backward_s=layer.backward_s,
        middle_layers=layers.middle_layers,
        binding_layers=np.where(last_binds, layers.last_layers, layers.middle_layers),
        loss_s=np.where(last_binds, loss, 0.0),
        fixed_s=_fixed(inputs),
        bubble_s=bubble_s(cases, middle, last, _total_layers(cases) * stage + loss),
        hidden_bytes=work.hidden_bytes,
        dense_weights=work.dense_weights,
        expert_weights=work.expert_weights,
        embedding_weights=work.embedding_weights,
    )


def _total_layers(cases: Cases) -> Array:
    """Layers of the whole pipeline."""
    return np.asarray(cases.architecture.layers + cases.architecture.mtp_layers)


def total_s(inputs: StepInputs, stage: StageTimes) -> Array:
    """`price(...).total_s` from precomputed stage times; the inputs' work and kernels are not read."""
    micro_batch_s = stage.binding_layers * (stage.forward_s + stage.backward_s) + stage.loss_s
    total = inputs.cases.layout.micro_batches * micro_batch_s + (stage.fixed_s + stage.bubble_s)
    return np.asarray((total + sum(_replica_causes(inputs, stage).values())) * (1.0 + _jitter(inputs)))


def _replica_causes(inputs: StepInputs, stage: StageTimes) -> dict[str, Array]:
    """The causes that depend on the number of replicas and micro-batches."""
    return {
        "data_parallel_s": _data_parallel(inputs, stage),
        "pipeline_transfer_s": _transfers(inputs, stage),
        "optimizer_s": _optimizer(inputs, stage),
    }


def _jitter(inputs: StepInputs) -> Array:
    """The relative slowdown from the slowest of many nodes."""
    domains = np.maximum(_gpus(inputs.cases) / inputs.links.reach_gpus, 1.0)
    return np.asarray(inputs.parameters.node_jitter * np.log2(domains))


def _gpus(cases: Cases) -> Array:
    layout = cases.layout
    return np.asarray(layout.dp * layout.tp * layout.pp * layout.cp)


def _loss(inputs: StepInputs) -> Array:
    """Head, softmax and cross-entropy of one micro-batch; fused kernels pass over the logits less often."""
    cases, p, code = inputs.cases, inputs.parameters, host_class(inputs.cases)
    stated, default = cases.workload.loss, cases.framework.loss
    kernel = np.where(stated == LossKernel.AUTO, default, stated)
    eager = (kernel == LossKernel.EAGER) & ~compiled(cases)
    old = np.isin(code, _EAGER_LOSS) & (default != LossKernel.FUSED)
    usual = np.where(np.isin(code, _FUSED_LOSS), False, old | eager)
    share = np.where(np.where(stated == LossKernel.AUTO, usual, eager), 1.0, p.loss_compiled)
    unsure = (
        (cases.framework.known == 0) & (stated == LossKernel.AUTO) & ~np.isin(code, _FUSED_LOSS + _EAGER_LOSS)
    )
    share = np.where(unsure, p.loss_compiled**0.5, share)  # either may be: half way in logarithm
    tokens, vocabulary, _ = inputs.work.head_shape
    moved = p.loss_bytes * share * tokens * vocabulary / inputs.rates.hbm_bytes_per_s
    used = np.where(cases.architecture.vocab > 1, 1.0, 0.0)
    _, columns, hidden = inputs.work.head_shape
    moved = moved + accumulated_s(inputs, np.where(trained_ends(cases), columns * hidden, 0.0))
    head_s = forward_passes(cases) * inputs.kernels.head_forward_s + inputs.kernels.head_backward_s
    return np.asarray(used * (head_s + moved))


def _held_weights(inputs: StepInputs, stage: StageTimes) -> tuple[Array, Array]:
    """Trained elements on one GPU before sharding: (dense with the embedding, routed experts)."""
    cases, layers = inputs.cases, stage.middle_layers
    trained = np.where(frozen(cases), inputs.parameters.adapter_share, 1.0)
    ends = stage.embedding_weights / np.where(cases.layout.pp > 1, 2.0, 1.0)
    ends = ends * np.where(trained_ends(cases), 1.0, trained)
    return stage.dense_weights * layers * trained + ends, stage.expert_weights * layers * trained


def _data_parallel(inputs: StepInputs, stage: StageTimes) -> Array:
    """Exposed seconds of the gradient exchange, beyond what the backward passes of its micro-batches hide."""
    cases, p = inputs.cases, inputs.parameters
    layout, framework = cases.layout, cases.framework
    zero = (layout.sharding == Sharding.ZERO1) | (layout.sharding == Sharding.ZERO2)
    between_groups = (layout.sharding >= Sharding.ZERO3) & (framework.defers_group_reduce == 0)
    repeated = (layout.sharding == Sharding.ZERO2) & (framework.reduces_every_micro_batch > 0)
    traffic = _exchange_s(inputs, stage, zero)
    traffic = traffic * np.where(repeated | between_groups, layout.micro_batches, 1)
    v = np.maximum(layout.vpp, 1)
    drains = np.minimum(1 + (layout.pp - 1) * (v - 1) / v, np.maximum(layout.micro_batches, 1))
    drains = np.where(between_groups, layout.micro_batches, drains)
    window = p.data_window * stage.middle_layers * drains
    window = window * (stage.backward_s + np.where(zero, stage.forward_s, 0.0))
    hidden = p.data_exposed * traffic + np.maximum((1 - p.data_exposed) * traffic - window, 0.0)
    return np.asarray(np.where(framework.overlaps_gradient_reduce > 0, hidden, traffic))


def _exchange_s(inputs: StepInputs, stage: StageTimes, zero: Array) -> Array:
    """Seconds of one exchange of gradients between the replicas, as if nothing hid it.

    Legend: R data-parallel ranks, g of them in a shard group, S bytes of the gradients on one GPU before
    sharding. FSDP scatters inside each layer (layer_time.py), which leaves S/g on each rank. HSDP then
    all-reduces that part over the R/g groups; rank i of each group exchanges with rank i of the others:

        t = ring(2 S / g, R / g ranks, tp g GPUs apart)          # FSDP: g = R, t = 0; DDP and ZeRO-1: g = 1

    DeepSpeed's hpZ gathers weights forward and scatters gradients over all ranks instead: as many bytes.
    """
    cases, wires, p, layout = inputs.cases, inputs.links, inputs.parameters, inputs.cases.layout
    dense, experts = _held_weights(inputs, stage)
    scattered = (cases.framework.scatters_gradients > 0) | (cases.workload.precision == Precision.FP16)
    moved = _gradient_bytes(cases) * np.where(zero & scattered, 1.0, 2.0) + np.where(zero, 2.0, 0.0)
    sharded = layout.sharding >= Sharding.ZERO3
    g = np.where(sharded, shard_ranks(layout), 1.0)
    ranks = group(wires, layout.dp * layout.cp / g, layout.tp * g)
    traffic = ring_s(dense * moved / g, ranks, wires, p)
    if np.any(experts > 0):
        g = np.where(sharded, expert_shard_ranks(layout), 1.0)
        spread = group(wires, expert_replicas(layout) / g, np.maximum(layout.ep, 1) * g)
        traffic = traffic + np.where(experts > 0, ring_s(experts * moved / g, spread, wires, p), 0.0)
    return traffic


def _gradient_bytes(cases: Cases) -> Array:
    """Bytes of a gradient on the wire: loss scaling keeps those of fp16 runs in 16 bits."""
    sixteen = cases.workload.precision == Precision.FP16
    return np.where(sixteen, 2.0, cases.framework.gradient_reduce_bytes)


def _transfers(inputs: StepInputs, stage: StageTimes) -> Array:
    """Exposed seconds of sending activations forward and gradients back between stages.

    A micro-batch crosses p - 1 boundaries twice while p of them are in flight: (p-1)/p messages in each
    direction per micro-batch. If the pipeline leaves a domain, its slow boundary sets the pace.
    """
    cases, p = inputs.cases, inputs.parameters
    layout, v = cases.layout, np.maximum(cases.layout.vpp, 1)
    crosses = _gpus(cases) > inputs.links.reach_gpus
    message = stage.hidden_bytes / layout.tp  # every tensor rank sends its part
    sharing = np.minimum(layout.tp * layout.cp * layout.dp, inputs.links.reach_gpus)
    once = send_s(message, crosses, sharing, inputs.links, p)
    count = layout.micro_batches * v * (layout.pp - 1) / layout.pp + layout.pp - 1
    overlapped = (v > 1) & (host_class(cases) == HOST_CLASSES.index("core"))
    exposed = np.where(overlapped, p.transfer_overlapped, p.transfer_exposed)
    directions = 1.0 + forward_passes(cases)
    return np.asarray(np.where(layout.pp > 1, directions * count * once * exposed, 0.0))


def _optimizer(inputs: StepInputs, stage: StageTimes) -> Array:
    """Seconds to update the weights where the states are, and to sum a tied embedding's two gradients."""
    cases, p, wires = inputs.cases, inputs.parameters, inputs.links
    dense, experts = _held_weights(inputs, stage)
    shards = np.where(cases.layout.sharding >= Sharding.ZERO1, shard_ranks(cases.layout), 1)
    held = (dense + experts) / shards
    states = p.optimizer_bytes * held / inputs.rates.hbm_bytes_per_s
    on_host = (cases.layout.offload & int(Offload.OPTIMIZER)) > 0
    if np.any(on_host):
        states = np.where(on_host, _host_update_s(inputs, held), states)
    tied = (cases.layout.pp > 1) & (cases.architecture.tied_embeddings > 0) & ~frozen(cases)
    shared = np.where(tied, _gradient_bytes(cases) * stage.embedding_weights, 0.0)
    far = _gpus(cases) > wires.reach_gpus
    return np.asarray(states + shared / np.where(far, wires.between_bytes_per_s, wires.inside_bytes_per_s))


def _host_update_s(inputs: StepInputs, held: Array) -> Array:
    """Seconds until the host has updated a GPU's `held` weights and sent them back in 16 bits.

    The GPUs of a node share its processors. Gradients go down while backward runs.
    """
    cases = inputs.cases
    rate = np.where(cases.framework.family == "deepspeed", _HOST_UPDATES_PER_S, _TORCH_HOST_UPDATES_PER_S)
    rate = rate * np.interp(cases.gpu.pcie_bytes_per_s, _HOST_PCIE_BYTES_PER_S, _HOST_MEMORY_RATIO)
    sharing = np.minimum(_gpus(cases), np.maximum(cases.cluster.gpus_per_node, 1))
    back = BF16_BYTES * held / host_link_bytes_per_s(cases, inputs.parameters)
    return np.asarray(held * sharing / rate + back)


def _fixed(inputs: StepInputs) -> Array:
    """Host seconds per step: data, clipping, the optimizer's launches; plus a cost per sharded layer."""
    cases, p = inputs.cases, inputs.parameters
    code = host_class(cases)
    per_layer = (
        np.where(code == HOST_CLASSES.index("fsdp2"), p.step_layer_s_fsdp2, p.step_layer_s)
        * cases.architecture.layers
        / cases.layout.pp
    )
    sharded = cases.layout.sharding >= Sharding.ZERO3
    return p.step_fixed_s + np.where(sharded, per_layer, 0.0)
