"""What is trained: the dimensions of a transformer, and what follows from them (parameters, FLOPs)."""

import enum
from dataclasses import dataclass, field

__all__ = ["Architecture", "AttentionKind", "Family"]


class Family(enum.StrEnum):
    """The shape of the network, as far as cost goes."""

    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_DECODER = "encoder-decoder"
    VISION = "vision"
    DIFFUSION = "dit"


class AttentionKind(enum.StrEnum):
    """How queries, keys and values are made. MHA, GQA and MQA differ only in `kv_heads`."""

    GROUPED = "gqa"
    LATENT = "mla"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One transformer. Counts are of whole networks; widths are in elements.

    A mixture of experts has `experts` > 0; its first `dense_layers` layers are dense with `ffn_hidden`.
    An encoder-decoder keeps the decoder in the plain fields and the encoder in `encoder_*`; cross-attention is
    implied. A vision transformer's tokens come from `fixed_tokens`. `extra_parameters` are those outside the
    layers, the token embedding and the head (position tables, convolution stems, final norms, biases).
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
    mtp_layers: int = 0
    encoder_layers: int = 0
    encoder_tokens: int = 0
    fixed_tokens: int = 0
    per_layer_parameters: int = 0
    extra_parameters: int = 0
    source: str = field(default="", metadata={"column": False})
