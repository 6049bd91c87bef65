"""Seconds of a layer's traffic for one micro-batch: collectives, sharded weights and the host link.

Tensor, context and expert traffic is exposed by the share that the framework cannot overlap. Gathers and
offloads are whole here: `layer_time` overlaps them with the layer's kernels.
"""

from dataclasses import replace

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.framework import SelectiveRecompute
from rightsizer_engine.domain.layout import Offload, Sharding
from rightsizer_engine.domain.workload import Method, Recompute, ScaleGranularity
from rightsizer_engine.estimate.collectives import (
    all_to_all_s,
    expert_shard_ranks,
    group,
    ring_s,
    shard_ranks,
)
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.step.host_time import HOST_CLASSES, host_class, superchip
from rightsizer_engine.estimate.step.inputs import StepInputs
from rightsizer_engine.estimate.step.layer_compute import GpuTime, gathers_cast
from rightsizer_engine.estimate.work import frozen, offloaded_share, quantised_bytes

_C2C_BYTES_PER_S = 4.5e11  # NVLink-C2C between a Grace CPU and its GPU, one direction
_ZERO3_RAILS_YEAR = 2022  # before it, ZeRO-3's gathers reached one NIC's rate (arXiv:2104.04473 Table 2)


def exposed_collectives_s(inputs: StepInputs, forward: GpuTime) -> tuple[Array, Array, Array]:
    """Exposed seconds of one direction: tensor-parallel all-reduce, context exchange, expert dispatch."""
    cases, work, links, p = inputs.cases, inputs.work, inputs.links, inputs.parameters
    layout, framework = cases.layout, cases.framework
    exposed = _tensor_exposed(inputs)
    tp = 2.0 * exposed * ring_s(work.hidden_bytes, group(links, layout.tp), links, p, passes=2.0)
    cp = ring_s(work.kv_bytes * layout.cp, group(links, layout.cp, layout.tp), links, p)
    hidden = np.maximum(cp - forward.attention, 0.0)
    cp = np.where(framework.overlaps_context_exchange > 0, hidden, cp)
    if not np.any(cases.architecture.experts > 0):
        return tp, cp, np.zeros(())
    experts = group(links, np.maximum(layout.ep, 1), np.maximum(layout.expert_tp, 1))
    once = _once_per_domain(inputs, experts.domains)
    exposed = np.where(_hides_exchange(cases), p.expert_overlapped, p.expert_exposed)
    ep = 2.0 * exposed * all_to_all_s(work.routed_bytes, once, experts, links, p)
    return tp, cp, np.where(cases.architecture.experts > 0, ep, 0.0)


def _hides_exchange(cases: Cases) -> Array:
    """Whether the experts' exchange runs behind another micro-batch's compute."""
    layout, facts = cases.layout, cases.framework
    pairs = ((layout.pp == 1) | (layout.vpp > 1)) & (layout.recompute != Recompute.FULL)
    return np.asarray(facts.overlaps_expert_exchange & (pairs | (facts.expert_overlap_interleaves == 0)))


def _tensor_exposed(inputs: StepInputs) -> Array:
    """The share of tensor-parallel communication that is not overlapped with matmuls.

    An unknown framework in 8 or 4 bits is assumed to be TransformerEngine with overlap on. Torch's compiler
    fuses reductions with the preceding matmul, but no gather with a matmul that has a scale per row
    (pytorch/pytorch#149990).
    """
    cases, code, least = inputs.cases, host_class(inputs.cases), inputs.parameters.tensor_exposed
    engine = (cases.framework.known == 0) & (code == HOST_CLASSES.index("core")) & inputs.rates.low_precision
    overlaps = (cases.framework.overlaps_tensor_parallel > 0) | engine
    by_row = (code >= HOST_CLASSES.index("fsdp1")) & (cases.workload.scaling == ScaleGranularity.ROW)
    return np.where(overlaps, np.where(by_row, 0.5 + 0.5 * least, least), 1.0)


def backward_exposed(inputs: StepInputs) -> Array:
    """The exposed share of tensor-parallel communication in backward, relative to forward.

    Megatron since 2022 reduces input gradients while it computes weight gradients. With sequence parallelism
    each rank keeps only its part of an input and gathers it again (half of an all-reduce's traffic,
    arXiv:2205.05198 4.2.2). Torch's recompute by operators keeps the results of reductions, not of gathers.
    """
    code, p = host_class(inputs.cases), inputs.parameters
    split = inputs.cases.layout.sequence_parallel
    core = code == HOST_CLASSES.index("core")
    year = inputs.cases.workload.library_year
    since = inputs.cases.framework.overlaps_backward_since
    overlaps = (code == HOST_CLASSES.index("megatron")) & ((year == 0) | (year >= since))
    exposed = np.where(core | overlaps, p.tensor_backward_exposed, 1.0)
    framework, mode = inputs.cases.framework, inputs.cases.layout.recompute
    ops = (mode == Recompute.SELECTIVE) & (framework.selective == SelectiveRecompute.OPS)
    kept = (framework.saves_gathered_inputs | framework.overlaps_tensor_parallel) & ~ops
    return np.asarray(exposed * np.where(split & ~kept, 1.5, 1.0))


def _once_per_domain(inputs: StepInputs, domains: Array) -> Array:
    """Bytes that leave a domain if a token goes to each other domain at most once, with uniform routing."""
    top_k = np.maximum(inputs.cases.architecture.top_k, 1)
    tokens = inputs.work.routed_bytes / top_k
    return np.asarray(tokens * (domains - 1) * (1 - (1 - 1 / np.maximum(domains, 1)) ** top_k))


def shard_traffic_s(inputs: StepInputs) -> tuple[Array, Array]:
    """Seconds to gather a layer's sharded weights and to scatter its gradients."""
    cases, links, p = inputs.cases, inputs.links, inputs.parameters
    layout, framework = cases.layout, cases.framework
    ranks = shard_ranks(cases.layout)
    on = (layout.sharding >= Sharding.ZERO3) & (ranks > 1)
    if not np.any(on):
        return np.zeros(()), np.zeros(())
    trained = np.where(frozen(cases), p.adapter_share, 1.0)
    quantised = cases.workload.method == Method.QLORA
    weight = np.where(quantised, quantised_bytes(cases), framework.weight_gather_bytes)
    weight = np.where(gathers_cast(cases), 1.0, weight)
    dense = group(links, ranks, layout.tp)
    year = cases.workload.library_year
    early = (framework.family == "deepspeed") & (year > 0) & (year < _ZERO3_RAILS_YEAR)
    dense = replace(dense, inside=np.where(early & (dense.domains > 1), 1.0, dense.inside))
    sparse = group(links, expert_shard_ranks(cases.layout), np.maximum(layout.ep, 1))

    def move(bytes_: Array) -> Array:
        both = ring_s(inputs.work.dense_weights * bytes_, dense, links, p)
        experts = inputs.work.expert_weights
        if np.any(experts > 0):
            expert = ring_s(experts * bytes_, sparse, links, p)
            both = both + np.where(experts > 0, expert, 0.0)
        return np.where(on, both, 0.0)

    return move(weight), move(framework.gradient_reduce_bytes * trained)


def host_link_bytes_per_s(cases: Cases, parameters: Parameters) -> Array:
    """The rate that one GPU reaches to or from host memory."""
    line = np.where(superchip(cases), _C2C_BYTES_PER_S, cases.gpu.pcie_bytes_per_s)
    return np.asarray(np.maximum(line, 1e9) * parameters.host_link_fraction)


def host_traffic_s(inputs: StepInputs) -> tuple[Array, Array]:
    """Seconds to load a layer's offloaded weights and to move its activations over the host link.

    Activations are offloaded by choice, as many as the link can hide: what outlasts the layer is exposed.
    """
    cases, work = inputs.cases, inputs.work
    host_link = host_link_bytes_per_s(cases, inputs.parameters)
    ranks = np.where(cases.layout.sharding >= Sharding.ZERO3, shard_ranks(cases.layout), 1)
    weight = np.where(cases.workload.method == Method.QLORA, quantised_bytes(cases), 2.0)
    moved = (work.dense_weights + work.expert_weights) * weight / ranks
    weights = np.where((cases.layout.offload & int(Offload.PARAMETERS)) > 0, moved, 0.0)
    everything = work.wide_bytes + 8 * work.narrow_bytes
    kept = np.where(cases.layout.recompute == Recompute.FULL, work.narrow_bytes, everything)
    activations = offloaded_share(cases) * kept
    return np.asarray(weights / host_link), np.asarray(activations / host_link)
