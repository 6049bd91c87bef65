"""Read decoders from their Hugging Face config: dimensions from its keys, the rest from the model type."""

import dataclasses
from collections.abc import Mapping

from rightsizer_engine.catalog.config_keys import Config
from rightsizer_engine.domain.architecture import Architecture, AttentionKind
from rightsizer_engine.errors import InputError, UnsupportedError
from rightsizer_engine.values import immutable

_HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_HEAD_DIM = ("head_dim", "kv_channels")
_VOCAB = ("vocab_size", "padded_vocab_size")
_FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_k")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
_DENSE = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
_SEQUENCE = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")

ALL_BIASES = frozenset({"q", "kv", "o", "mlp"})
_QKV = frozenset({"q", "kv"})


@immutable
class DecoderStyle:
    """Properties that follow from the model type and are not in its config.

    `norms` and `final_norms` count weight vectors of the hidden width: in a layer and after the last one.
    `qk_norm` is as wide as one head ("head") or all heads ("full"). `windowed` is the share of layers with a
    sliding window.
    """

    norms: int = 2
    final_norms: int = 1
    norm_bias: bool = False
    biases: frozenset[str] = frozenset()
    qk_norm: str = ""
    gated: bool = True
    tied: bool = False
    parallel: bool = False
    windowed: str = "all"
    head_dim: int = 0
    positions: int | None = None
    defaults: Mapping[str, int] = dataclasses.field(default_factory=dict)


STYLES: Mapping[str, DecoderStyle] = {
    "apertus": DecoderStyle(qk_norm="head", gated=False),
    "arcee": DecoderStyle(gated=False),
    "bailing_moe_v2": DecoderStyle(qk_norm="head"),
    "chatglm": DecoderStyle(biases=_QKV),
    "cohere": DecoderStyle(norms=1, tied=True, parallel=True),
    "cohere2": DecoderStyle(norms=1, tied=True, parallel=True, windowed="3 of 4"),
    "dbrx": DecoderStyle(norm_bias=False),
    "deepseek_v2": DecoderStyle(),
    "deepseek_v3": DecoderStyle(),
    "deepseek_v32": DecoderStyle(),
    "dots1": DecoderStyle(qk_norm="head", head_dim=128),
    "ernie4_5": DecoderStyle(tied=True, head_dim=128),
    "ernie4_5_moe": DecoderStyle(tied=True),
    "exaone4": DecoderStyle(qk_norm="head", windowed="3 of 4"),
    "gemma": DecoderStyle(tied=True, head_dim=256),
    "gemma2": DecoderStyle(norms=4, tied=True, head_dim=256, windowed="1 of 2"),
    "gemma3_text": DecoderStyle(
        norms=4,
        qk_norm="head",
        tied=True,
        head_dim=256,
        windowed="5 of 6",
        defaults={"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262_208},
    ),
    "glm4": DecoderStyle(norms=4, head_dim=128),
    "glm4_moe": DecoderStyle(),
    "glm4_moe_lite": DecoderStyle(),
    "glm_moe_dsa": DecoderStyle(),
    "gpt2": DecoderStyle(norm_bias=True, biases=ALL_BIASES, gated=False, tied=True, positions=0),
    "gpt_bigcode": DecoderStyle(norm_bias=True, biases=ALL_BIASES, gated=False, tied=True, positions=0),
    "gpt_neo": DecoderStyle(
        norm_bias=True, biases=frozenset({"o", "mlp"}), gated=False, tied=True, positions=0, windowed="1 of 2"
    ),
    "gpt_neox": DecoderStyle(norm_bias=True, biases=ALL_BIASES, gated=False, parallel=True),
    "gpt_oss": DecoderStyle(biases=ALL_BIASES - {"mlp"}, windowed="1 of 2", head_dim=64),
    "gptj": DecoderStyle(
        norms=1, norm_bias=True, biases=frozenset({"mlp", "head"}), gated=False, parallel=True
    ),
    "bloom": DecoderStyle(norm_bias=True, biases=ALL_BIASES, gated=False, tied=True, final_norms=2),
    "falcon": DecoderStyle(norm_bias=True, gated=False, tied=True, parallel=True),
    "granite": DecoderStyle(),
    "granitemoe": DecoderStyle(),
    "hunyuan_v1_dense": DecoderStyle(qk_norm="head"),
    "hunyuan_v1_moe": DecoderStyle(qk_norm="head"),
    "kimi_k2": DecoderStyle(),
    "llama": DecoderStyle(),
    "llama4_text": DecoderStyle(windowed="3 of 4"),
    "minimax_m2": DecoderStyle(qk_norm="full"),
    "mistral": DecoderStyle(),
    "mixtral": DecoderStyle(),
    "phimoe": DecoderStyle(norm_bias=True),
    "stablelm": DecoderStyle(norm_bias=True),
    "mpt": DecoderStyle(gated=False, tied=True),
    "nemotron": DecoderStyle(norm_bias=True, gated=False),
    "olmo": DecoderStyle(norms=0, final_norms=0),
    "olmo2": DecoderStyle(qk_norm="full"),
    "olmo3": DecoderStyle(qk_norm="full", windowed="3 of 4"),
    "olmoe": DecoderStyle(qk_norm="full"),
    "opt": DecoderStyle(norm_bias=True, biases=ALL_BIASES, gated=False, tied=True, positions=2),
    "phi": DecoderStyle(norms=1, norm_bias=True, biases=ALL_BIASES | {"head"}, gated=False, parallel=True),
    "phi3": DecoderStyle(),
    "qwen2": DecoderStyle(biases=_QKV),
    "qwen2_moe": DecoderStyle(biases=_QKV),
    "qwen3": DecoderStyle(qk_norm="head", head_dim=128),
    "qwen3_moe": DecoderStyle(qk_norm="head", head_dim=128),
    "seed_oss": DecoderStyle(biases=_QKV, head_dim=128),
    "starcoder2": DecoderStyle(norm_bias=True, biases=ALL_BIASES, gated=False, tied=True),
}


def decoder(
    read: Config, style: DecoderStyle, name: str, source: str, *, layers: int = 0, experts: bool = True
) -> Architecture:
    """A decoder-only network: dimensions from the config under any known key, the rest from the style.

    `layers` overrides the config's; without `experts` its experts are left out.
    """
    hidden = read.count(*_HIDDEN)
    layers = layers or read.layers(*_LAYERS)
    heads = read.count(*HEADS, default=style.defaults.get(HEADS[0]))
    kv_heads = read.count(*_KV_HEADS, default=style.defaults.get(_KV_HEADS[0], heads))
    if heads % kv_heads:
        remedy = f"must divide num_attention_heads ({heads})"
        raise InputError(f"{read.path}.{_KV_HEADS[0]}", value=kv_heads, remedy=remedy)
    head_dim = _head_dim(read, style, hidden, heads)
    ffn = read.count(*_FFN, default=4 * hidden)
    window, windowed = _window(read, style, layers)
    base = Architecture(
        name=name,
        layers=layers,
        hidden=hidden,
        ffn_hidden=ffn,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=read.count(*_VOCAB, default=style.defaults.get("vocab_size")),
        gated_mlp=style.gated,
        tied_embeddings=read.flag("tie_word_embeddings", default=style.tied),
        parallel_residual=read.flag("use_parallel_residual", default=style.parallel),
        max_sequence=read.count(*_SEQUENCE, default=0, least=0, most=2**40),
        sliding_window=window,
        sliding_layers=windowed,
        source=source,
    )
    return _with_small(read, style, with_experts(read, base) if experts else base)


def latent_decoder(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """A decoder with latent attention; `head_dim` is the width of queries and keys."""
    query_rank, rank = read.count("q_lora_rank", default=0, least=0), read.count("kv_lora_rank")
    plain, rotary = read.count("qk_nope_head_dim"), read.count("qk_rope_head_dim")
    latent_style = dataclasses.replace(style, head_dim=plain + rotary)
    a = decoder(read, latent_style, name, source)
    return dataclasses.replace(
        a,
        attention=AttentionKind.LATENT,
        head_dim=latent_style.head_dim,
        q_lora_rank=query_rank,
        kv_lora_rank=rank,
        qk_nope_head_dim=plain,
        qk_rope_head_dim=rotary,
        v_head_dim=read.count("v_head_dim"),
        per_layer_parameters=2 * a.hidden + query_rank + rank,
    )


def _head_dim(read: Config, style: DecoderStyle, hidden: int, heads: int) -> int:
    if any(read.has(key) for key in _HEAD_DIM) or style.head_dim:
        return read.count(*_HEAD_DIM, default=style.head_dim)
    return read.quotient("num_attention_heads", hidden, heads)


def _window(read: Config, style: DecoderStyle, layers: int) -> tuple[int, int]:
    """The sliding window in tokens, and the number of layers with it."""
    window = read.count("sliding_window", "attention_chunk_size", default=0, least=0, most=2**40)
    if not window or not read.flag("use_sliding_window", default=True):
        return 0, 0
    kinds = read.items("layer_types")
    if kinds:
        return window, min(layers, sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds))
    if style.windowed == "all":
        return window, max(0, layers - read.count("max_window_layers", default=0, least=0))
    period = read.count("sliding_window_pattern", default=int(style.windowed.split(" of ")[1]))
    return window, layers - layers // period if period > 1 else layers


def with_experts(read: Config, base: Architecture) -> Architecture:
    """The network with the config's experts, if any."""
    experts = read.count(*_EXPERTS, default=0, least=0)
    if experts < 2:
        return base
    top_k = read.count(*_TOP_K)
    if top_k > experts:
        remedy = f"must not exceed the {experts} experts"
        raise InputError(f"{read.path}.num_experts_per_tok", value=top_k, remedy=remedy)
    width = read.count("moe_intermediate_size", default=base.ffn_hidden)
    shared = read.count(*_SHARED, default=0, least=0)
    if any(read.has(key) for key in _SHARED_WIDTH):
        wide = read.count(*_SHARED_WIDTH, least=0)
        shared = read.quotient("moe_intermediate_size", wide, width)
    return dataclasses.replace(
        base,
        experts=experts,
        top_k=top_k,
        expert_ffn_hidden=width,
        shared_experts=shared,
        dense_layers=_dense_layers(read, base.layers),
        moe_layer_step=read.count("decoder_sparse_step", "moe_layer_freq", default=1),
    )


def _dense_layers(read: Config, layers: int) -> int:
    """The number of dense layers before the experts; dense layers elsewhere are not supported."""
    listed = list(read.items("mlp_only_layers"))
    if listed != list(range(len(listed))):
        raise UnsupportedError(f"{read.path}.mlp_only_layers: {listed!r}: only the first layers can be dense")
    kinds = [kind == "dense" for kind in read.items("mlp_layer_types")]
    if kinds and sorted(kinds, reverse=True) != kinds:
        raise UnsupportedError(f"{read.path}.mlp_layer_types: only the first layers can be dense")
    return min(layers, len(listed) or sum(kinds) or read.count(*_DENSE, default=0, least=0))


def _with_small(read: Config, style: DecoderStyle, a: Architecture) -> Architecture:
    """The network with the parameters of its norms, biases and position tables."""
    biases = set(style.biases)
    if read.flag("attention_bias", default=False):
        biases |= {"q", "kv", "o"}
    if read.flag("mlp_bias", default=False):
        biases.add("mlp")
    query, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
    bias_sizes = {
        "q": query,
        "kv": 2 * keys,
        "o": a.hidden,
        "mlp": (1 + a.gated_mlp) * a.ffn_hidden + a.hidden,
    }
    norm = a.hidden * (2 if style.norm_bias else 1)
    qk_norm = {"": 0, "head": 2 * a.head_dim, "full": query + keys}[style.qk_norm]
    positions = 0 if style.positions is None else (a.max_sequence + style.positions) * a.hidden
    return dataclasses.replace(
        a,
        per_layer_parameters=style.norms * norm + qk_norm + sum(bias_sizes.get(bias, 0) for bias in biases),
        extra_parameters=style.final_norms * norm + positions + (a.vocab if "head" in biases else 0),
    )
