"""The number of GPUs that serve a trained model: a first estimate from weights, cache and memory bandwidth.

A replica is g GPUs that share every layer (tensor parallelism). Its memory holds the weights and the caches
of B sequences. A request is read in one pass (prefill, bound by FLOPs), then each step writes one token for
all B sequences (decode, bound by memory bandwidth: all weights that the batch touches and all its caches are
read). With continuous batching a replica serves

    1 / (prefill_s + output_tokens * step_s / B)  requests a second.

A token's cache: keys and values of each attention layer (MLA: one latent vector, arXiv:2405.04434, 2.1), of
the last `sliding_window` tokens in a layer with a window; a linear layer keeps one state whatever the length.
A step over experts reads those that the batch is routed to: E (1 - (1 - K/E)^B) of E, if routing is uniform.

Not modelled: speculation, prefix caches, disaggregated prefill, uneven lengths, queueing beyond `LOAD`,
expert parallelism. Against 54 rows of NVIDIA's table of TensorRT-LLM 1.0
(docs/source/performance/perf-overview.md: H100 and H200, 8 bits, 128 to 20,000 tokens) it is 0.86 to 1.47
times the measured rate, median 1.01. No constant was changed for them; tests/sizing/test_serving.py holds 20
of them to a factor of 2.
"""

import math

from rightsizer_engine.domain.architecture import (
    Architecture,
    AttentionKind,
    Family,
    expert_parameters,
    layers_moe,
)
from rightsizer_engine.domain.flop import flop_per_token
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable

LOAD = 0.8
"""Share of a replica's highest rate that is planned with; the rest absorbs bursts. A guess."""
_BANDWIDTH_SHARE = 0.75
"""Of the datasheet's bandwidth in decode: 70 to 80 % in published kernels' profiles; a guess for a stack."""
_FLOP_SHARE = 0.5
"""Of the dense peak in prefill; a guess, as trained models reach 40 to 55 % in 16 bits."""
_MEMORY_SHARE = 0.9
"""Of the memory that weights and caches fill: vLLM's gpu_memory_utilization."""
_RESERVED_BYTES = 2.0 * 2**30
"""Activations and buffers of a step; a guess."""
_STEP_S = 2e-3
"""Scheduling and sampling of a step on the host; a guess."""
_REDUCE_S = 1e-5
"""Latency of an all-reduce in one node (nccl_measured: 10 to 20 us for small messages)."""
_LINK_SHARE = 0.7
_MOST_SEQUENCES = 1024
"""Sequences at once: vLLM's max_num_seqs on large GPUs."""
_MOST_GPUS_A_REPLICA = 64
_SCALES = {16: 1.0, 8: 1.0, 4: 1.125}
"""Bytes with scales over those of the bits alone: 4 bits with one 16-bit scale for 32 weights."""


@immutable
class Demand:
    """The wanted service: requests a second, their tokens, and the bits of a weight and a cached element."""

    requests_per_s: float
    input_tokens: int = 1000
    output_tokens: int = 300
    weight_bits: int = 16
    cache_bits: int = 16

    def __post_init__(self) -> None:
        if not (self.requests_per_s > 0 and math.isfinite(self.requests_per_s)):
            raise InputError("serve.requests", value=self.requests_per_s, remedy="must be above 0")
        for name, tokens in (("input", self.input_tokens), ("output", self.output_tokens)):
            if not 1 <= tokens <= 2**24:
                raise InputError(f"serve.{name}", value=tokens, remedy="must be from 1 to 16,777,216 tokens")
        if self.weight_bits not in _SCALES:
            raise InputError("serve.bits", value=self.weight_bits, remedy="must be 16, 8 or 4")
        if self.cache_bits not in (16, 8):
            raise InputError("serve.cache", value=self.cache_bits, remedy="must be 16 or 8")


@immutable
class Replica:
    """One copy of the model on `gpus` GPUs, with as many sequences at once as fit."""

    gpus: int
    weights_bytes: float
    sequence_bytes: float
    sequences: int
    prefill_s: float
    step_s: float
    requests_per_s: float
    output_tokens_per_s: float


@immutable
class ServingPlan:
    """The replicas that meet a demand on the fewest GPUs."""

    demand: Demand
    cluster: Cluster
    replica: Replica
    replicas: int
    cache_bytes_per_token: float

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.replicas * self.replica.gpus


@immutable
class ModelTooLarge:
    """No replica holds the model and one sequence."""

    demand: Demand
    cluster: Cluster
    weights_bytes: float


def serve(network: Architecture, cluster: Cluster, demand: Demand) -> ServingPlan | ModelTooLarge:
    """The fewest GPUs that meet the demand; of equals the smaller replicas."""
    if network.family is not Family.DECODER:
        raise InputError("serve", value=network.name, remedy="only decoders generate tokens one by one")
    sizes = [2**k for k in range(_MOST_GPUS_A_REPLICA.bit_length())]
    fitting = [one for g in sizes if (one := replica(network, cluster, demand, g)) is not None]
    if not fitting:
        return ModelTooLarge(demand=demand, cluster=cluster, weights_bytes=_weights_bytes(network, demand))
    counts = [math.ceil(demand.requests_per_s / (LOAD * one.requests_per_s)) for one in fitting]
    best = min(range(len(fitting)), key=lambda i: (counts[i] * fitting[i].gpus, fitting[i].gpus))
    context = demand.input_tokens + demand.output_tokens
    return ServingPlan(
        demand=demand,
        cluster=cluster,
        replica=fitting[best],
        replicas=counts[best],
        cache_bytes_per_token=sequence_bytes(network, context, demand.cache_bits) / context,
    )


def replica(
    network: Architecture, cluster: Cluster, demand: Demand, gpus: int, sequences: int | None = None
) -> Replica | None:
    """A replica on that many GPUs with as many sequences as fit, or as stated; None if it does not fit."""
    weights = _weights_bytes(network, demand)
    context = demand.input_tokens + demand.output_tokens
    whole = sequence_bytes(network, context, demand.cache_bits)
    room = gpus * (_MEMORY_SHARE * cluster.gpu.memory_bytes - _RESERVED_BYTES) - weights
    fit = math.floor(room / max(whole, 1.0))
    if fit < 1:
        return None
    batch = sequences or min(fit, _MOST_SEQUENCES)
    step_s = _step_s(network, cluster, demand, gpus, batch)
    prefill_s = _prefill_s(network, cluster, demand, gpus)
    rate = 1.0 / (prefill_s + demand.output_tokens * step_s / batch)
    return Replica(
        gpus=gpus,
        weights_bytes=weights,
        sequence_bytes=whole,
        sequences=batch,
        prefill_s=prefill_s,
        step_s=step_s,
        requests_per_s=rate,
        output_tokens_per_s=rate * demand.output_tokens,
    )


def sequence_bytes(network: Architecture, tokens: float, cache_bits: int = 16) -> float:
    """The cache of one sequence: growing, windowed and constant parts."""
    a = network
    element = cache_bits / 8
    latent = a.attention is AttentionKind.LATENT
    width = a.kv_lora_rank + a.qk_rope_head_dim if latent else 2 * a.kv_heads * a.head_dim
    attending = a.layers - a.attention_free_layers
    windowed = 0 if a.indexer_width else min(a.sliding_layers, attending)  # an indexer may read any token
    near = min(a.sliding_window, tokens) if a.sliding_window else tokens
    kept = (attending - windowed) * tokens + windowed * near
    return float(element * width * kept + 2.0 * a.linear_layers * a.linear_state)


def _weights_bytes(network: Architecture, demand: Demand) -> float:
    return network.parameters_total * demand.weight_bits / 8 * _SCALES[demand.weight_bits]


def _touched(network: Architecture, batch: int) -> float:
    """The share of all weights that a step of `batch` tokens reads."""
    if not network.experts:
        return 1.0
    routed = float(layers_moe(network) * network.experts * expert_parameters(network))
    idle = (1.0 - min(network.top_k / network.experts, 1.0)) ** batch
    return 1.0 - idle * routed / network.parameters_total


def _peak(cluster: Cluster, demand: Demand) -> float:
    """FLOP/s of matmuls: in 8 bits where the weights and the GPU have it; 4-bit weights multiply in 16."""
    gpu = cluster.gpu
    sixteen = max(gpu.bf16_flop_per_s, gpu.fp16_flop_per_s)
    return _FLOP_SHARE * (gpu.fp8_flop_per_s or sixteen if demand.weight_bits == 8 else sixteen)


def _step_s(network: Architecture, cluster: Cluster, demand: Demand, gpus: int, batch: int) -> float:
    """Seconds to write one token for every sequence."""
    context = demand.input_tokens + demand.output_tokens / 2
    read = _weights_bytes(network, demand) * _touched(network, batch)
    read += batch * sequence_bytes(network, context, demand.cache_bits)
    memory_s = read / (gpus * _BANDWIDTH_SHARE * cluster.gpu.memory_bytes_per_s)
    compute_s = batch * 2.0 * network.parameters_matmul_active / (gpus * _peak(cluster, demand))
    return max(memory_s, compute_s) + _STEP_S + _reduce_s(network, cluster, gpus, batch)


def _prefill_s(network: Architecture, cluster: Cluster, demand: Demand, gpus: int) -> float:
    """Seconds to read one request: a third of training's FLOPs."""
    tokens = demand.input_tokens
    flop = tokens * float(flop_per_token(network, tokens)) / 3.0
    return flop / (gpus * _peak(cluster, demand)) + _reduce_s(network, cluster, gpus, tokens, latency_s=0.0)


def _reduce_s(
    network: Architecture, cluster: Cluster, gpus: int, tokens: float, latency_s: float = _REDUCE_S
) -> float:
    """Seconds of two all-reduces in every layer."""
    if gpus == 1:
        return 0.0
    inside = gpus <= max(cluster.nvlink_domain_gpus, cluster.gpus_per_node)
    link = cluster.intra_bytes_per_s if inside else cluster.inter_bytes_per_s
    moved = 2.0 * (gpus - 1) / gpus * 2.0 * tokens * network.hidden
    return 2.0 * network.layers * (latency_s + moved / max(_LINK_SHARE * link, 1.0))
