"""Seconds that one micro-batch spends in an average layer, forward and backward, by cause.

Legend: F forward, B backward, C what the host (Python, launches) needs for the same work. The GPU waits when C > F, and
for the part of a collective that the framework cannot hide. A recomputed part is paid again in B, as its own cause.

Sharded weights (ZeRO-3, FSDP) are gathered a layer ahead: a share x of the traffic is never hidden (the copies and the
collective's own kernels), the rest competes with the layer, as a smooth maximum:

    exposed = x S + [ T^4 + ((1-x) S)^4 ]^(1/4) - T
"""

from dataclasses import dataclass, fields

import numpy as np

from rightsizer.cases import Cases
from rightsizer.columns import Array
from rightsizer.communication import Links, all_to_all_s, group, ring_s
from rightsizer.compute import Kernels, Rates, flash
from rightsizer.framework import Kernels as KernelStyle
from rightsizer.framework import SelectiveRecompute
from rightsizer.layout import Sharding
from rightsizer.parameters import Parameters
from rightsizer.work import LayerWork, frozen
from rightsizer.workload import Method, Recompute

__all__ = ["HOST_CLASSES", "LayerTime", "compiled", "layer_time"]

HOST_CLASSES = ("megatron", "core", "fsdp1", "fsdp2", "trainer")
"""Framework generations (`Framework.time_class`) that share host time and element-wise kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds by cause; forward and backward together but for the two that schedules need apart."""

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
        return {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("forward_s", "backward_s")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """One direction's pieces."""

    matmul: Array
    attention: Array
    elementwise: Array


def host_class(cases: Cases) -> Array:
    """Index into HOST_CLASSES."""
    names, inverse = np.unique(np.atleast_1d(cases.framework.time_class), return_inverse=True)
    table = np.asarray([HOST_CLASSES.index(n) if n in HOST_CLASSES else 1 for n in names.tolist()])
    return np.asarray(table[inverse.reshape(np.shape(cases.framework.time_class))])


def compiled(cases: Cases) -> Array:
    """True where element-wise work is fused by a compiler or by hand."""
    asked = cases.workload.compile == 1
    return np.asarray(asked | (cases.framework.kernels != KernelStyle.EAGER))


def layer_time(
    cases: Cases, work: LayerWork, kernels: Kernels, rates: Rates, links: Links, parameters: Parameters
) -> LayerTime:
    """The seconds of an average layer for one micro-batch."""
    forward = _forward(cases, work, kernels, rates, parameters)
    again = _recomputed(cases)
    tp, cp, ep = _collectives(cases, work, forward.attention, links, parameters)
    repeats = np.where(again["matmul"] > 0.99, 1.0, 0.0)
    frozen_linear = np.where(frozen(cases), parameters.adapter_matmul, 1.0)
    matmul_b = kernels.matmul_input_gradient_s * frozen_linear + kernels.matmul_weight_gradient_s
    matmul_b = matmul_b + _dequantise(cases, work, rates, parameters)
    attention_b, elementwise_b = kernels.attention_backward_s, 2.0 * forward.elementwise
    recompute = (
        again["matmul"] * forward.matmul
        + again["attention"] * forward.attention
        + again["elementwise"] * forward.elementwise
    )
    gpu_f = forward.matmul + forward.attention + forward.elementwise + tp + cp + ep
    gpu_b = matmul_b + attention_b + elementwise_b + recompute + tp + 2 * cp + ep + repeats * (tp + cp + ep)
    host_f, host_b = _host(cases, again["matmul"], parameters)
    wait_f, wait_b = np.maximum(host_f - gpu_f, 0.0), np.maximum(host_b - gpu_b, 0.0)
    gather, scatter = _sharded(cases, work, links, parameters)
    shard_f = _exposed(gpu_f + wait_f, gather, parameters.sharding_exposed)
    shard_b = _exposed(gpu_b + wait_b, gather + scatter, parameters.sharding_exposed)
    offload = _offload(cases, work, parameters)
    return LayerTime(
        matmul_s=forward.matmul + matmul_b,
        attention_s=forward.attention + attention_b,
        elementwise_s=forward.elementwise + elementwise_b,
        recompute_s=recompute,
        tensor_parallel_s=(2 + repeats) * tp,
        context_parallel_s=(3 + repeats) * cp,
        expert_parallel_s=(2 + repeats) * ep,
        sharding_s=shard_f + shard_b,
        host_s=wait_f + wait_b,
        offload_s=2 * offload,
        forward_s=gpu_f + wait_f + shard_f + offload,
        backward_s=gpu_b + wait_b + shard_b + offload,
    )


def _forward(cases: Cases, work: LayerWork, kernels: Kernels, rates: Rates, parameters: Parameters) -> _Parts:
    """Matmuls with their casts and adapters, attention, and the element-wise kernels between them."""
    code = host_class(cases)
    cast = parameters.keyed("cast_passes", HOST_CLASSES)[code] * 0.25 * kernels.cast_bytes
    adapters = np.where(frozen(cases), parameters.adapter_matmul, 1.0)
    passes = parameters.keyed("elementwise_passes", HOST_CLASSES)[code]
    passes = np.where(compiled(cases), np.minimum(parameters.elementwise_fused, passes), passes)
    moved = passes * (work.narrow_bytes + parameters.wide_share * work.wide_bytes)
    moved = moved + parameters.permute_passes * work.routed_bytes
    dequantise = _dequantise(cases, work, rates, parameters)
    return _Parts(
        matmul=kernels.matmul_forward_s * adapters + cast / rates.hbm_bytes_per_s + dequantise,
        attention=kernels.attention_forward_s,
        elementwise=moved / rates.hbm_bytes_per_s,
    )


def _dequantise(cases: Cases, work: LayerWork, rates: Rates, parameters: Parameters) -> Array:
    """QLoRA expands its 4-bit weights to 16 bits before each use (arXiv:2305.14314)."""
    weights = np.where(cases.workload.method == Method.QLORA, work.dense_weights + work.expert_weights, 0.0)
    return np.asarray(weights * parameters.dequantise_bytes / rates.hbm_bytes_per_s)


def _recomputed(cases: Cases) -> dict[str, Array]:
    """The share of each forward part that backward repeats."""
    mode, layers = cases.layout.recompute, cases.layout.recompute_layers
    stage = cases.architecture.layers / cases.layout.pp
    some = np.where(layers > 0, np.minimum(layers / stage, 1.0), 1.0)
    full = np.where(mode == Recompute.FULL, some, 0.0)
    style = cases.framework.selective
    chosen = mode == Recompute.SELECTIVE
    core = np.where(chosen & (style == SelectiveRecompute.ATTENTION_CORE), 1.0, 0.0)
    ops = np.where(chosen & (style == SelectiveRecompute.OPS), 1.0, 0.0)
    modules = np.where(chosen & (style == SelectiveRecompute.MODULES), 1.0, 0.0)
    return {
        "matmul": full + 0.5 * ops,
        "attention": full + core,
        "elementwise": full + ops + 0.6 * modules,
    }


def _collectives(
    cases: Cases, work: LayerWork, attention_s: Array, links: Links, parameters: Parameters
) -> tuple[Array, Array, Array]:
    """Exposed seconds of one direction: two tensor-parallel all-reduces, the context exchange, the experts' dispatch."""
    layout = cases.layout
    hidden = cases.framework.overlaps_tensor_parallel > 0
    exposed = np.where(hidden, parameters.tensor_exposed, 1.0)
    tp_group = group(links, layout.tp)
    tp = 2.0 * exposed * ring_s(work.hidden_bytes, tp_group, links, parameters, passes=2.0)
    cp_group = group(links, layout.cp, layout.tp)
    cp = ring_s(work.kv_bytes * layout.cp, cp_group, links, parameters)
    cp = np.maximum(cp - attention_s, parameters.context_exposed * cp)
    ep_group = group(links, np.maximum(layout.ep, 1), np.maximum(layout.expert_tp, 1))
    ep = all_to_all_s(
        work.routed_bytes, _once_per_domain(cases, work, ep_group.domains), ep_group, links, parameters
    )
    return tp, cp, np.where(cases.architecture.experts > 0, 2.0 * ep, 0.0)


def _once_per_domain(cases: Cases, work: LayerWork, domains: Array) -> Array:
    """Bytes that leave a domain when a token goes to each other domain at most once, with uniform routing."""
    top_k = np.maximum(cases.architecture.top_k, 1)
    tokens = work.routed_bytes / top_k
    return np.asarray(tokens * (domains - 1) * (1 - (1 - 1 / np.maximum(domains, 1)) ** top_k))


def _host(cases: Cases, recomputed: Array, parameters: Parameters) -> tuple[Array, Array]:
    """Seconds the CPU needs to launch a layer: forward, backward."""
    base = parameters.keyed("host_layer_s", HOST_CLASSES)[host_class(cases)]
    fused = np.where((cases.workload.compile == 1), parameters.host_compiled, 1.0)
    trainer = host_class(cases) == HOST_CLASSES.index("trainer")
    hooks = np.where(trainer & (cases.layout.sharding >= Sharding.ZERO3), parameters.host_zero3_hooks, 1.0)
    once = base * fused * hooks * (1 + parameters.host_tensor_growth * np.log2(cases.layout.tp))
    return once, once * (parameters.host_backward + recomputed)


def _sharded(cases: Cases, work: LayerWork, links: Links, parameters: Parameters) -> tuple[Array, Array]:
    """Seconds to gather a layer's weights and to scatter its gradients, when they are sharded."""
    layout, framework = cases.layout, cases.framework
    ranks = shard_ranks(cases)
    on = (layout.sharding >= Sharding.ZERO3) & (ranks > 1)
    trained = np.where(frozen(cases), parameters.adapter_share, 1.0)
    quantised = cases.workload.method == Method.QLORA
    weight = np.where(quantised, parameters.quantised_bytes, framework.weight_gather_bytes)
    gradient = framework.gradient_reduce_bytes * trained
    dense = group(links, ranks, layout.tp)
    replicas = np.maximum(layout.dp * layout.cp * layout.tp / np.maximum(layout.ep * layout.expert_tp, 1), 1)
    sparse = group(links, replicas, np.maximum(layout.ep, 1))

    def move(bytes_: Array) -> Array:
        both = ring_s(work.dense_weights * bytes_, dense, links, parameters)
        expert = ring_s(work.expert_weights * bytes_, sparse, links, parameters)
        return np.where(on, both + np.where(work.expert_weights > 0, expert, 0.0), 0.0)

    return move(weight), move(gradient)


def shard_ranks(cases: Cases) -> Array:
    """Ranks that share the sharded states."""
    layout = cases.layout
    everyone = layout.dp * layout.cp
    return np.asarray(np.where(layout.shard_group > 0, np.minimum(layout.shard_group, everyone), everyone))


def _exposed(compute_s: Array, traffic_s: Array, share: float) -> Array:
    rest = (1 - share) * traffic_s
    top = np.maximum(np.maximum(compute_s, rest), 1e-12)
    low = np.minimum(compute_s, rest) / top
    return np.asarray(share * traffic_s + top * (1 + low**4) ** 0.25 - compute_s)


def _offload(cases: Cases, work: LayerWork, parameters: Parameters) -> Array:
    """Seconds to bring a layer's offloaded weights, or take its activations, over the host link."""
    flags = cases.layout.offload
    pcie = np.maximum(cases.gpu.pcie_bytes_per_s, 1e9) * parameters.pcie_fraction
    ranks = np.where(cases.layout.sharding >= Sharding.ZERO3, shard_ranks(cases), 1)
    weight = np.where(cases.workload.method == Method.QLORA, parameters.quantised_bytes, 2.0)
    weights = np.where((flags & 2) > 0, (work.dense_weights + work.expert_weights) * weight / ranks, 0.0)
    kept = np.where(
        cases.layout.recompute == Recompute.FULL, work.narrow_bytes, work.wide_bytes + 8 * work.narrow_bytes
    )
    activations = np.where((flags & 4) > 0, kept * parameters.offload_exposed, 0.0)
    return np.asarray((weights + activations) / pcie)


def flash_default(cases: Cases) -> Array:
    """Re-exported for readers of the layer: where attention never materialises the scores."""
    return flash(cases)
