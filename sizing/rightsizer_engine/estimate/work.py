"""Work of one GPU for one micro-batch in an average layer: matmul shapes, attention, memory traffic.

Legend: s tokens of a sequence, b sequences of a micro-batch, t tensor-parallel, c context-parallel, e
expert-parallel ranks, T = b s / c tokens in a tensor-parallel region, h hidden, f feed-forward width, a
heads, k key/value heads, d head dimension, E experts, K experts of a token, L layers. A matmul is (m, n,
k): an (m, k) by (k, n) product, 2 m n k FLOP.

All of this follows from dimensions; no constant is fitted. Layers that differ (dense and sparse,
windowed and full, attention and state space, encoder and decoder) are averaged: a matmul's `count` is its
number of occurrences in an average decoder layer.
"""

import numpy as np

from rightsizer_engine.domain.architecture import encoder_widths, layers_moe, mlp_share
from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.layout import Offload
from rightsizer_engine.domain.linear import attention_share, linear_flop, linear_share
from rightsizer_engine.domain.workload import AttentionKernel, Method, Quantiser
from rightsizer_engine.values import immutable

BF16_BYTES = 2.0
_MATMUL_NAMES = (
    "qkv", "attention_out", "q_down", "q_up", "kv_down", "kv_up", "latent_out",
    "linear_in", "linear_out", "encoder_attention", "encoder_in", "encoder_out",
    "mlp_in", "mlp_out", "shared_in", "shared_out", "router", "cross", "expert_in", "expert_out",
)  # fmt: skip
_GROUPED = np.asarray([name.startswith("expert") for name in _MATMUL_NAMES])


@immutable
class Matmuls:
    """Forward matmuls of an average layer: the rows of MATMUL_NAMES in use, along the first axis.

    `grouped` marks the experts' matmuls, which run many in one launch.
    """

    m: Array
    n: Array
    k: Array
    count: Array
    grouped: Array

    @property
    def flop(self) -> Array:
        """FLOPs of each matmul's occurrences."""
        return 2.0 * self.m * self.n * self.k * self.count

    @property
    def weights(self) -> Array:
        """Weight elements of each matmul's occurrences."""
        return self.n * self.k * self.count


@immutable
class LayerWork:
    """One micro-batch through an average layer on one GPU, forward."""

    matmuls: Matmuls
    tokens: Array
    dense_share: Array
    attention_flop: Array
    scan_flop: Array
    score_elements: Array
    attention_tokens: Array
    qk_dim: Array
    narrow_bytes: Array
    wide_bytes: Array
    routed_bytes: Array
    hidden_bytes: Array
    kv_bytes: Array
    head_shape: tuple[Array, Array, Array]
    dense_weights: Array
    expert_weights: Array
    embedding_weights: Array


def layer_work(cases: Cases) -> LayerWork:
    """The work of an average layer; every array broadcasts against the cases' columns."""
    arch, layout, workload = cases.architecture, cases.layout, cases.workload
    tokens = layout.micro_batch * workload.sequence_tokens / layout.cp
    dense = dense_share(cases)
    matmuls = _matmuls(cases, tokens, dense)
    context = np.maximum(workload.sequence_tokens, 1.0)
    qk, v = _head_dims(cases)
    heads = arch.heads / layout.tp
    keys = _mean_keys(cases)
    shard = np.where(layout.sequence_parallel, layout.tp, 1)
    wide = (1 + _gate(cases)) * _mlp_width(cases, dense) + heads * (qk + v) * attention_share(arch)
    wide = wide + linear_share(arch) * (arch.linear_in + arch.linear_inner) / layout.tp
    expert_tokens = tokens / layout.tp * arch.top_k
    return LayerWork(
        matmuls=matmuls,
        tokens=tokens,
        dense_share=dense,
        attention_flop=2.0 * tokens * keys * heads * (qk + v)
        + tokens * (_encoder_flop(cases) + _indexer_flop(cases)) / layout.tp,
        scan_flop=tokens * linear_share(arch) * linear_flop(arch) / layout.tp,
        score_elements=tokens * context * heads * attention_share(arch),
        attention_tokens=context,
        qk_dim=qk,
        narrow_bytes=BF16_BYTES * tokens * arch.hidden / shard,
        wide_bytes=BF16_BYTES * tokens * wide,
        routed_bytes=BF16_BYTES * expert_tokens * arch.hidden * (1 - dense),
        hidden_bytes=BF16_BYTES * tokens * arch.hidden,
        kv_bytes=BF16_BYTES * tokens * _kv_width(cases) * attention_share(arch),
        head_shape=(tokens, np.maximum(arch.vocab / layout.tp, 1.0), arch.hidden + 0.0 * tokens),
        dense_weights=np.where(matmuls.grouped, 0.0, matmuls.weights).sum(axis=0),
        expert_weights=np.where(matmuls.grouped, matmuls.weights, 0.0).sum(axis=0),
        embedding_weights=arch.vocab * arch.hidden / layout.tp * np.where(arch.tied_embeddings, 1.0, 2.0),
    )


def dense_share(cases: Cases) -> Array:
    """The share of layers without experts: the first ones, and those that the MoE step skips."""
    return np.asarray(1.0 - layers_moe(cases.architecture) / cases.architecture.layers)


def _gate(cases: Cases) -> Array:
    """Input projections of the feed-forward: 2 when it is gated (SwiGLU, GeGLU)."""
    return np.asarray(np.where(cases.architecture.gated_mlp, 2.0, 1.0))


def frozen(cases: Cases) -> Array:
    """True where the base weights are frozen: adapters need no weight gradient of the base."""
    method = cases.workload.method
    return np.asarray((method == Method.LORA) | (method == Method.QLORA))


def quantised_bytes(cases: Cases) -> Array:
    """Bytes of a quantised weight with its scales.

    bitsandbytes keeps a 4-byte scale for 64 weights in 4 bits, doubly quantised a byte and a 256th of 4
    (QLoRA, arXiv:2305.14314, section 3), and one for each row in 8 bits; GPTQ 2 bytes and a zero for 128.
    """
    workload = cases.workload
    plain = workload.quantised_bits / 8.0
    scale = np.where(cases.framework.double_quantises, (1.0 + 4.0 / 256.0) / 64.0, 4.0 / 64.0)
    scale = np.where(workload.quantised_bits == 4, scale, 0.0)
    return plain + np.where(workload.quantiser == Quantiser.GPTQ, (2.0 + plain) / 128.0, scale)


def offloaded_share(cases: Cases) -> Array:
    """The share of the activations that leave the GPU for host memory."""
    layout = cases.layout
    share = np.where(layout.offload_percent > 0, layout.offload_percent / 100.0, 1.0)
    return np.asarray(np.where((layout.offload & int(Offload.ACTIVATIONS)) > 0, share, 0.0))


def trained_ends(cases: Cases) -> Array:
    """True where embedding and head are trained: with all weights, or in full beside adapters."""
    return np.asarray(~frozen(cases) | adapts(cases.workload, "embeddings"))


def adapts(workload: Columns, part: str) -> Array:
    """True where `lora_targets` names the part: attention, all, experts or embeddings."""
    return np.asarray(np.char.find(np.asarray(workload.lora_targets, dtype=str), part) >= 0)


def attention_kernel(cases: Cases) -> Array:
    """The kernel as stated, else the framework's; FLASH is what the framework's users mean by it."""
    stated, facts = cases.workload.attention, cases.framework
    kernel = np.where(stated == AttentionKernel.AUTO, facts.attention, stated)
    return np.where(kernel == AttentionKernel.FLASH, facts.flash_kernel, kernel)


def _head_dims(cases: Cases) -> tuple[Array, Array]:
    arch = cases.architecture
    latent = arch.attention == "mla"
    qk = np.where(latent, arch.qk_nope_head_dim + arch.qk_rope_head_dim, arch.head_dim)
    return qk, np.where(latent, arch.v_head_dim, arch.head_dim)


def _mean_keys(cases: Cases) -> Array:
    """Mean keys per query: s/2 if causal, s in an encoder, fewer with a window, none without attention."""
    arch = cases.architecture
    s = np.maximum(cases.workload.sequence_tokens, 1.0)
    causal = (arch.family == "decoder") | (arch.family == "encoder-decoder")
    full = np.where(causal, 0.5 * s, s)
    window = np.minimum(np.maximum(arch.sliding_window, 1), s)
    inside = window * (1.0 - 0.5 * window / s)
    share = np.where(arch.sliding_window > 0, np.minimum(arch.sliding_layers / arch.layers, 1.0), 0.0)
    return np.asarray(full * (attention_share(arch) - share) + np.minimum(inside, full) * share)


def _indexer_flop(cases: Cases) -> Array:
    """Forward FLOPs a token of sparse attention's indexer, which scores all earlier keys."""
    arch = cases.architecture
    return np.asarray(cases.workload.sequence_tokens * arch.indexer_width * attention_share(arch))


def _encoder_flop(cases: Cases) -> Array:
    """Forward FLOPs of encoder and cross attention for a decoder token, in an average decoder layer."""
    arch = cases.architecture
    _, _, heads = encoder_widths(arch)
    own = 4.0 * heads * arch.head_dim * arch.encoder_tokens * _encoder_share(cases)
    crossing = np.where(arch.family == "encoder-decoder", 4.0 * arch.heads * arch.head_dim, 0.0)
    return np.asarray(own * arch.encoder_layers / arch.layers + crossing * arch.encoder_tokens)


def _mlp_width(cases: Cases, dense: Array) -> Array:
    arch, layout = cases.architecture, cases.layout
    sparse = (arch.top_k + arch.shared_experts) * arch.expert_ffn_hidden
    return np.asarray((dense * mlp_share(arch) * arch.ffn_hidden + (1 - dense) * sparse) / layout.tp)


def _kv_width(cases: Cases) -> Array:
    """Elements of a token's keys and values on one GPU, as exchanged by context parallelism."""
    arch, layout = cases.architecture, cases.layout
    qk, v = _head_dims(cases)
    all_heads = (arch.attention == "mla") | (cases.framework.merges_context_parts > 0)
    heads = np.where(all_heads, arch.heads, np.maximum(arch.kv_heads, layout.tp))
    return np.asarray(heads / layout.tp * (qk + v))


def _matmuls(cases: Cases, tokens: Array, dense: Array) -> Matmuls:
    shapes = [*_attention_matmuls(cases, tokens), *_encoder_matmuls(cases, tokens)]
    shapes += _mlp_matmuls(cases, tokens, dense)
    shapes += _expert_matmuls(cases, tokens, dense)
    columns = [np.stack(np.broadcast_arrays(*part)) for part in zip(*shapes, strict=True)]
    m, n, k, count = np.broadcast_arrays(*columns)
    count = np.where((m > 0) & (n > 0) & (k > 0), count, 0.0)
    used = np.flatnonzero((count > 0).any(axis=tuple(range(1, count.ndim))))
    return Matmuls(
        m=np.maximum(m[used], 1e-3),
        n=np.maximum(n[used], 1.0),
        k=np.maximum(k[used], 1.0),
        count=count[used],
        grouped=_GROUPED[used].reshape((-1,) + (1,) * (count.ndim - 1)),
    )


_Shape = tuple[Array, Array, Array, Array]


def _attention_matmuls(cases: Cases, tokens: Array) -> list[_Shape]:
    """Projections. Latent attention (arXiv:2405.04434) derives q, k and v from low ranks not split by t."""
    arch, t = cases.architecture, cases.layout.tp
    h = arch.hidden
    own, linear = attention_share(arch), linear_share(arch)
    latent = np.where(arch.attention == "mla", own, 0.0)
    plain = own - latent
    qk, v = _head_dims(cases)
    kv_width = 2 * np.maximum(arch.kv_heads, t) * arch.head_dim
    q_rank = arch.q_lora_rank
    q_input = np.where(q_rank > 0, q_rank, h)
    queries = arch.heads * arch.head_dim * (1 + np.where(arch.attention_gate, 1.0, 0.0))
    return [
        (tokens, (queries + kv_width) / t, h, plain),
        (tokens, h, arch.heads * arch.head_dim / t, plain),
        (tokens, q_rank, h, latent),
        (tokens, arch.heads * qk / t, q_input, latent),
        (tokens, arch.kv_lora_rank + arch.qk_rope_head_dim, h, latent),
        (tokens, arch.heads * (arch.qk_nope_head_dim + v) / t, arch.kv_lora_rank, latent),
        (tokens, h, arch.heads * v / t, latent),
        (tokens, arch.linear_in / t, h, linear),
        (tokens, h, arch.linear_inner / t, linear),
    ]


def _encoder_matmuls(cases: Cases, tokens: Array) -> list[_Shape]:
    """The encoder's or second tower's layers: projections of its own width over its own tokens."""
    arch, t = cases.architecture, cases.layout.tp
    hidden, ffn, heads = encoder_widths(arch)
    own, count = tokens * _encoder_share(cases), arch.encoder_layers / arch.layers
    return [
        (own, 4.0 * heads * arch.head_dim / t, hidden, count),
        (own, _gate(cases) * ffn / t, hidden, count),
        (own, hidden, ffn / t, count),
    ]


def _mlp_matmuls(cases: Cases, tokens: Array, dense: Array) -> list[_Shape]:
    arch, t = cases.architecture, cases.layout.tp
    h, f, shared = arch.hidden, arch.ffn_hidden, arch.shared_experts * arch.expert_ffn_hidden
    own = dense * mlp_share(arch)
    crosses = np.where(arch.family == "encoder-decoder", 2.0, 0.0)
    return [
        (tokens, _gate(cases) * f / t, h, own),
        (tokens, h, f / t, own),
        (tokens, _gate(cases) * shared / t, h, 1 - dense),
        (tokens, h, shared / t, 1 - dense),
        (tokens / t, arch.experts, h, 1 - dense),
        (tokens, 2.0 * arch.heads * arch.head_dim / t, h, crosses),
    ]


def _expert_matmuls(cases: Cases, tokens: Array, dense: Array) -> list[_Shape]:
    """Routed experts: E/e of them on a GPU, each with its share of the tokens of e ranks."""
    arch, layout = cases.architecture, cases.layout
    experts = np.maximum(arch.experts, 1)
    split = np.maximum(layout.expert_tp, 1)
    local = np.where(arch.experts > 0, experts / np.maximum(layout.ep, 1), 0.0)
    routed = tokens / layout.tp * split * arch.top_k * np.maximum(layout.ep, 1) / experts
    f = arch.expert_ffn_hidden / split
    count = local * (1 - dense)
    return [
        (routed, _gate(cases) * f, arch.hidden, count),
        (routed, arch.hidden, f, count),
    ]


def _encoder_share(cases: Cases) -> Array:
    """Encoder tokens for each decoder token."""
    arch = cases.architecture
    return np.asarray(arch.encoder_tokens / np.maximum(cases.workload.sequence_tokens, 1))
