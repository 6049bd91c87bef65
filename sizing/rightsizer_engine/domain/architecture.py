"""The architecture: the dimensions of a transformer, and the parameters that follow from them.

Every function takes one `Architecture` or `Columns` of many, so that memory and time share one formula; it
returns a numpy array that broadcasts (shape () for one). Counts are float64, exact up to 9e15.
"""

import enum
from dataclasses import field

import numpy as np

from rightsizer_engine.domain.columns import Columns, Floats, cached_by_columns, choose, equals, floats
from rightsizer_engine.domain.linear import attention_layers, linear_parameters
from rightsizer_engine.values import immutable


class Family(enum.StrEnum):
    """The shape of the network, as far as cost goes."""

    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_DECODER = "encoder-decoder"
    VISION = "vision"
    DIFFUSION = "dit"


class AttentionKind(enum.StrEnum):
    """The kind of queries, keys and values. MHA, GQA and MQA differ only in `kv_heads`."""

    GROUPED = "gqa"
    LATENT = "mla"


@immutable
class Architecture:
    """One transformer. Counts are of whole networks; widths are in elements.

    A mixture of experts has `experts` > 0; its first `dense_layers` layers are dense with `ffn_hidden`, and
    of the rest every `moe_layer_step`-th has experts of `expert_ffn_hidden` (0: `ffn_hidden`). Its
    `shared_experts` are as wide as the routed ones. An encoder-decoder keeps the decoder in the plain fields
    and the encoder in `encoder_*`; cross-attention is implied. Any other network with `encoder_layers` has a
    second tower (CLIP's text, the images of a vision-language model), without cross-attention. Where
    `encoder_hidden`, `encoder_ffn_hidden` or `encoder_heads` is 0 the plain field holds. A vision or
    diffusion transformer's tokens come from `fixed_tokens`. `embedding_hidden` is the embedding's width where
    it is not `hidden`.
    `per_layer_parameters` are those of a layer that no token multiplies with (norms, biases, modulation, the
    second stream of a two-stream block); `extra_parameters` those outside the layers, the token embedding and
    the head (position tables, convolution stems, final norms).

    A hybrid has `linear_layers` with a mixer of constant state (linear.py) and `attention_free_layers`; where
    a layer is a mixer or a feed-forward alone, `mlp_free_layers` counts the former. `attention_gate` is a
    projection that scales attention's output. `indexer_width` (heads x width) scores all keys for sparse
    attention, of which a query then reads `sliding_window`. `doubt` says what of the network is a guess.
    """

    name: str
    family: Family = Family.DECODER
    layers: int
    hidden: int
    ffn_hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    parallel_residual: bool = False
    max_sequence: int = 0
    attention: AttentionKind = AttentionKind.GROUPED
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int = 0
    sliding_layers: int = 0
    experts: int = 0
    top_k: int = 0
    expert_ffn_hidden: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    moe_layer_step: int = 1
    mlp_free_layers: int = 0
    mtp_layers: int = 0
    attention_free_layers: int = 0
    attention_gate: bool = False
    indexer_width: int = 0
    linear_layers: int = 0
    linear_heads: int = 0
    linear_in: int = 0
    linear_inner: int = 0
    linear_saved: int = 0
    linear_state: int = 0
    linear_scan_flop: int = 0
    encoder_layers: int = 0
    encoder_tokens: int = 0
    encoder_hidden: int = 0
    encoder_ffn_hidden: int = 0
    encoder_heads: int = 0
    encoder_per_layer_parameters: int = 0
    fixed_tokens: int = 0
    embedding_hidden: int = 0
    per_layer_parameters: int = 0
    extra_parameters: int = 0
    source: str = field(default="", metadata={"column": False})
    doubt: str = field(default="", metadata={"column": False})

    @property
    def parameters_total(self) -> float:
        """All parameters of the network."""
        return float(parameters_total(self))

    @property
    def parameters_active(self) -> float:
        """The parameters that one token touches: all but the experts it is not routed to."""
        return float(parameters_active(self))

    @property
    def parameters_matmul_active(self) -> float:
        """The N of 6N: the weights that one token multiplies with."""
        return float(parameters_matmul_active(self))


@cached_by_columns
def attention_width(a: Architecture | Columns) -> Floats:
    """Width of all heads: heads * head_dim; for MLA the mean of the query-key and the value width."""
    latent = (
        floats(a.heads) * (floats(a.qk_nope_head_dim) + floats(a.qk_rope_head_dim) + floats(a.v_head_dim)) / 2
    )
    return choose(equals(a.attention, AttentionKind.LATENT), latent, floats(a.heads) * floats(a.head_dim))


@cached_by_columns
def attention_parameters(a: Architecture | Columns) -> Floats:
    """One attention layer's weights: q, k, v, output and gate projections (MLA: with the low-rank factors).

    MLA as in DeepSeek-V2, arXiv:2405.04434, section 2.1: q through q_lora_rank (0: directly), k and v through
    kv_lora_rank, one rotary key of qk_rope_head_dim shared by all heads.
    """
    hidden, heads = floats(a.hidden), floats(a.heads)
    grouped = 2 * hidden * (heads + floats(a.kv_heads)) * floats(a.head_dim)
    grouped = grouped + floats(a.attention_gate) * hidden * heads * floats(a.head_dim)
    query = heads * (floats(a.qk_nope_head_dim) + floats(a.qk_rope_head_dim))
    rank = floats(a.q_lora_rank)
    queries = choose(rank > 0, rank * (hidden + query), hidden * query)
    keys_values = hidden * (floats(a.kv_lora_rank) + floats(a.qk_rope_head_dim)) + floats(
        a.kv_lora_rank
    ) * heads * (floats(a.qk_nope_head_dim) + floats(a.v_head_dim))
    latent = queries + keys_values + heads * floats(a.v_head_dim) * hidden
    return choose(equals(a.attention, AttentionKind.LATENT), latent, grouped)


@cached_by_columns
def mixer_parameters(a: Architecture | Columns) -> Floats:
    """Mean weights of a layer's token mixers: attention, a linear mixer, or both."""
    mixers = attention_layers(a) * attention_parameters(a) + floats(a.linear_layers) * linear_parameters(a)
    return np.asarray(mixers / np.maximum(floats(a.layers), 1.0))


@cached_by_columns
def cross_attention_parameters(a: Architecture | Columns) -> Floats:
    """One decoder layer's cross-attention weights; 0 unless the network is an encoder-decoder."""
    target = floats(a.hidden) * floats(a.head_dim) * 2
    source = encoder_widths(a)[0] * floats(a.head_dim) * 2
    size = target * floats(a.heads) + source * floats(a.kv_heads)
    return choose(equals(a.family, Family.ENCODER_DECODER), size, 0.0)


@cached_by_columns
def dense_ffn_parameters(a: Architecture | Columns) -> Floats:
    """Mean MLP weights of the layers without experts: two matrices, three where the MLP is gated."""
    return mlp_share(a) * _matrices(a) * floats(a.hidden) * floats(a.ffn_hidden)


@cached_by_columns
def mlp_share(a: Architecture | Columns) -> Floats:
    """The share of the layers without experts that have an MLP: 1 but in some hybrids."""
    return 1.0 - np.minimum(floats(a.mlp_free_layers) / np.maximum(layers_dense(a), 1.0), 1.0)


@cached_by_columns
def expert_parameters(a: Architecture | Columns) -> Floats:
    """One routed expert's weights; 0 for a dense network."""
    width = choose(floats(a.expert_ffn_hidden) > 0, floats(a.expert_ffn_hidden), floats(a.ffn_hidden))
    return choose(floats(a.experts) > 0, _matrices(a) * floats(a.hidden) * width, 0.0)


@cached_by_columns
def shared_expert_parameters(a: Architecture | Columns) -> Floats:
    """All shared experts' weights in one MoE layer."""
    return floats(a.shared_experts) * expert_parameters(a)


@cached_by_columns
def active_expert_parameters(a: Architecture | Columns) -> Floats:
    """The expert weights that one token multiplies with in one MoE layer: top_k routed, all shared."""
    return (floats(a.top_k) + floats(a.shared_experts)) * expert_parameters(a)


@cached_by_columns
def router_parameters(a: Architecture | Columns) -> Floats:
    """One MoE layer's router weights."""
    return floats(a.hidden) * floats(a.experts)


@cached_by_columns
def layers_moe(a: Architecture | Columns) -> Floats:
    """Layers with experts: every `moe_layer_step`-th after the first `dense_layers`; 0 if dense."""
    step = np.maximum(floats(a.moe_layer_step), 1.0)
    with_mlp = floats(a.layers) - floats(a.mlp_free_layers)
    count = np.floor(with_mlp / step) - np.floor(floats(a.dense_layers) / step)
    return choose(floats(a.experts) > 0, np.maximum(count, 0.0), 0.0)


@cached_by_columns
def layers_dense(a: Architecture | Columns) -> Floats:
    """Layers without experts."""
    return floats(a.layers) - layers_moe(a)


@cached_by_columns
def embedding_parameters(a: Architecture | Columns) -> Floats:
    """The token embedding's weights."""
    return floats(a.vocab) * choose(
        floats(a.embedding_hidden) > 0, floats(a.embedding_hidden), floats(a.hidden)
    )


@cached_by_columns
def head_parameters(a: Architecture | Columns) -> Floats:
    """The output head's own weights: 0 where they are the embedding's, or in an encoder (no head)."""
    separate = ~np.asarray(a.tied_embeddings, dtype=bool) & ~equals(a.family, Family.ENCODER)
    return choose(separate, embedding_parameters(a), 0.0)


@cached_by_columns
def head_matmul_parameters(a: Architecture | Columns) -> Floats:
    """The weights that a token multiplies with for its logits, tied or not; 0 for an encoder."""
    return choose(equals(a.family, Family.ENCODER), 0.0, embedding_parameters(a))


@cached_by_columns
def encoder_widths(a: Architecture | Columns) -> tuple[Floats, Floats, Floats]:
    """(hidden, feed-forward width, heads) of an encoder (or second tower) layer."""
    ffn = choose(floats(a.encoder_ffn_hidden) > 0, floats(a.encoder_ffn_hidden), floats(a.ffn_hidden))
    heads = choose(floats(a.encoder_heads) > 0, floats(a.encoder_heads), floats(a.heads))
    return choose(floats(a.encoder_hidden) > 0, floats(a.encoder_hidden), floats(a.hidden)), ffn, heads


@cached_by_columns
def tower_layers(a: Architecture | Columns) -> Floats:
    """Layers of a second tower: an encoder without cross-attention."""
    return choose(equals(a.family, Family.ENCODER_DECODER), 0.0, floats(a.encoder_layers))


@cached_by_columns
def encoder_layer_parameters(a: Architecture | Columns) -> Floats:
    """One encoder (or second tower) layer's matmul weights: full multi-head attention and a dense MLP."""
    hidden, ffn, heads = encoder_widths(a)
    return 4 * hidden * heads * floats(a.head_dim) + _matrices(a) * hidden * ffn


@cached_by_columns
def encoder_parameters(a: Architecture | Columns) -> Floats:
    """The whole encoder's (or second tower's) matmul weights; 0 where there is none."""
    return floats(a.encoder_layers) * encoder_layer_parameters(a)


@cached_by_columns
def parameters_total(a: Architecture | Columns) -> Floats:
    """All parameters of the network, with `mtp_layers` multi-token-prediction layers."""
    moe = floats(a.experts) * expert_parameters(a) + shared_expert_parameters(a) + router_parameters(a)
    return _common(a) + layers_moe(a) * moe + _mtp(a, moe)


@cached_by_columns
def parameters_active(a: Architecture | Columns) -> Floats:
    """The parameters that one token touches: all but the experts it is not routed to."""
    moe = active_expert_parameters(a) + router_parameters(a)
    return _common(a) + layers_moe(a) * moe + _mtp(a, moe)


@cached_by_columns
def parameters_matmul_active(a: Architecture | Columns) -> Floats:
    """The N of 6N: weights that one token multiplies with. The head counts (tied or not), the look-up not.

    An encoder-decoder's N sums both stacks, although a token passes only one: `flop_per_token` tells them
    apart.
    """
    moe = active_expert_parameters(a) + router_parameters(a)
    layers = floats(a.layers) * (mixer_parameters(a) + cross_attention_parameters(a))
    layers = layers + layers_dense(a) * dense_ffn_parameters(a) + layers_moe(a) * moe
    return layers + encoder_parameters(a) + head_matmul_parameters(a) + _mtp(a, moe)


@cached_by_columns
def _common(a: Architecture | Columns) -> Floats:
    """Everything but the MoE layers' feed-forward weights and the multi-token-prediction layers."""
    layer = mixer_parameters(a) + cross_attention_parameters(a) + floats(a.per_layer_parameters)
    stack = floats(a.layers) * layer + layers_dense(a) * dense_ffn_parameters(a)
    encoder = encoder_parameters(a) + floats(a.encoder_layers) * floats(a.encoder_per_layer_parameters)
    return stack + encoder + embedding_parameters(a) + head_parameters(a) + floats(a.extra_parameters)


def _mtp(a: Architecture | Columns, moe: Floats) -> Floats:
    """Multi-token prediction: a layer like the last and a 2 * hidden to hidden projection, the rest shared.

    DeepSeek-V3, arXiv:2412.19437, section 2.2.
    """
    ffn = choose(floats(a.experts) > 0, moe, dense_ffn_parameters(a))
    return floats(a.mtp_layers) * (attention_parameters(a) + ffn + 2 * floats(a.hidden) ** 2)


@cached_by_columns
def _matrices(a: Architecture | Columns) -> Floats:
    return choose(np.asarray(a.gated_mlp, dtype=bool), 3.0, 2.0)
