"""Read a Hugging Face `config.json` into an `Architecture`, norms and biases included.

Key names and defaults are those of the configuration classes of huggingface/transformers. A decoder of an
unknown type is read by its dimensions, and its `doubt` says so; an unknown hybrid is refused.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping

from rightsizer_engine.catalog.config_keys import Config
from rightsizer_engine.catalog.decoders import ALL_BIASES, HEADS, DecoderStyle, decoder, latent_decoder
from rightsizer_engine.catalog.decoders import STYLES as ATTENTION_STYLES
from rightsizer_engine.catalog.encoders import TOWERS
from rightsizer_engine.catalog.hybrids import HYBRIDS
from rightsizer_engine.catalog.towers import with_tower
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.errors import InputError, UnsupportedError

_STYLES = {**ATTENTION_STYLES, **{kind: style for kind, (style, _) in HYBRIDS.items()}}
_TEXT = ("text_config", "llm_config")
_ON_LLAMA = ("llava", "llava_next")
_LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
"""What LLaVA's configs leave out of their language model."""
_SAME = {
    **dict.fromkeys(
        ("aquila", "baichuan", "deepseek", "exaone", "idefics3", "internlm", "internlm2", "internlm3"),
        "llama",
    ),
    **dict.fromkeys(("bailing_moe", "minicpm", "smolvlm", "solar", "xgen", "yi"), "llama"),
    **dict.fromkeys(("ministral", "ministral3", "voxtral"), "mistral"),
    "codegen": "gptj",
    "glm": "chatglm",
    "granitemoeshared": "granitemoe",
    "paligemma": "gemma",
    "code_llama": "llama",
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "refinedweb": "falcon",
    "refinedwebmodel": "falcon",
    "internvl": "qwen2",
    "internvl_chat": "qwen2",
    "llava": "llama",
    "llava_next": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "mistral",
    "mllama": "llama",
    "mllama_text_model": "llama",
    "pixtral": "mistral",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
    "smollm3": "llama",
}
_FOREIGN = (
    *("ssm_state_size", "mamba_d_state", "state_size", "linear_num_key_heads", "linear_attn_config"),
    *("attn_layer_period", "layers_block_type", "hybrid_override_pattern", "conv_L_cache", "lru_width"),
    *("rwkv_version", "attention_hidden_size", "full_attention_interval", "attn_type_list"),
    "block_configs",
)
"""Keys of recurrent, hybrid and searched networks, whose layers are not all alike or not all attention."""
_ATTENTION_LAYERS = ("full_attention", "sliding_attention", "chunked_attention", "attention")


def from_config(config: Mapping[str, object], *, name: str = "") -> Architecture:
    """The architecture in a `config.json`; a vision-language model has its image tower beside the decoder.

    Raises InputError for a missing or wrong key, UnsupportedError for a network without a cost model.
    """
    if not isinstance(config, Mapping):
        raise InputError("model.config", value=config, remedy="must be the JSON object of a config.json")
    read = Config(config)
    kind = read.text("model_type").lower()
    called = name or read.text("_name_or_path") or kind or "config.json"
    if kind in TOWERS:
        return TOWERS[kind](read, called)
    source = f"Hugging Face config ({kind or 'no model_type'})"
    key = next((key for key in _TEXT if read.has(key)), None)
    if key is None:
        network = _decoder_of(read, kind, called, source)
    else:
        text = read.section(key, _LLAMA if kind in _ON_LLAMA else None)
        inner = text.text("model_type", default=_SAME.get(kind, kind)).lower()
        network = _decoder_of(text, inner or "llama", called, source)
    network = with_tower(read, network, kind) if read.has("vision_config") else network
    return _said_quantised(read, network)


def _said_quantised(read: Config, network: Architecture) -> Architecture:
    """The network, with a word on a checkpoint in few bits."""
    if not read.has("quantization_config"):
        return network
    method = read.section("quantization_config").text("quant_method")
    name = f" ({method})" if re.fullmatch(r"[\w-]{1,32}", method, re.ASCII) else ""
    said = f"the checkpoint's weights are quantised{name}: all methods but qlora start from 16-bit ones"
    return dataclasses.replace(network, doubt="; ".join(filter(None, [network.doubt, said])))


def model_types() -> tuple[str, ...]:
    """The known model types."""
    return tuple(sorted({*_STYLES, *_SAME, *TOWERS}))


def _decoder_of(read: Config, kind: str, name: str, source: str) -> Architecture:
    kind = _SAME.get(kind, kind)
    style = _STYLES.get(kind)
    if kind not in HYBRIDS:
        _refuse_hybrids(read, kind)
    if style is None:
        style = DecoderStyle()
    usual = latent_decoder if read.has("kv_lora_rank") else decoder
    a = _ADAPTERS.get(kind, usual)(read, style, name, source)
    doubt = f"model_type {kind!r} is unknown: read by its dimensions, with norms and biases guessed"
    return a if kind in _STYLES else dataclasses.replace(a, doubt=doubt)


def _refuse_hybrids(read: Config, kind: str) -> None:
    """Refuse a network with layers other than attention: full attention would be the wrong cost."""
    foreign = [key for key in _FOREIGN if read.has(key)]
    kinds = {str(listed) for listed in read.items("layer_types")}.difference(_ATTENTION_LAYERS)
    if foreign or kinds:
        reason = f"has {', '.join(foreign)}" if foreign else f"lists layers {', '.join(sorted(kinds))}"
        raise UnsupportedError(
            f"{read.path}.model_type: {kind!r} {reason}: layers that the engine has no cost model of; "
            f"known hybrids: {', '.join(HYBRIDS)}"
        )


# --- model types with keys of their own --------------------------------------------------


def _dbrx(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """DBRX: grouped heads and experts in sections of their own."""
    attention, experts = read.section("attn_config"), read.section("ffn_config")
    width = experts.count("ffn_hidden_size", default=10_752)
    own = {"num_key_value_heads": attention.count("kv_n_heads", default=1)}
    a = decoder(read, dataclasses.replace(style, defaults=own), name, source)
    return dataclasses.replace(
        a,
        ffn_hidden=width,
        experts=experts.count("moe_num_experts", default=4),
        top_k=experts.count("moe_top_k", default=1),
        expert_ffn_hidden=width,
    )


def _gpt_neo(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """GPT-Neo: every second layer attends to a window."""
    a = decoder(read, style, name, source)
    window = read.count("window_size", default=256)
    return dataclasses.replace(a, sliding_window=window, sliding_layers=a.layers // 2)


def _stablelm(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """StableLM: flags set biases on q, k and v, and one norm for attention and MLP side by side."""
    biases = frozenset({"q", "kv"}) if read.flag("use_qkv_bias", default=False) else frozenset()
    norms = 1 if read.flag("use_parallel_residual", default=False) else 2
    return decoder(read, dataclasses.replace(style, biases=biases, norms=norms), name, source)


def _sparse(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """DeepSeek-V3.2: an indexer scores all keys, and a query attends to the best ones (arXiv:2512.02556).

    The indexer's projections count among the small parameters: 2 % of the active ones.
    """
    a = latent_decoder(read, style, name, source)
    heads, width = read.count("index_n_heads", default=64), read.count("index_head_dim", default=128)
    small = a.q_lora_rank * heads * width + a.hidden * (width + heads) + 2 * width
    return dataclasses.replace(
        a,
        indexer_width=heads * width,
        sliding_window=read.count("index_topk", default=2048),
        sliding_layers=a.layers,
        per_layer_parameters=a.per_layer_parameters + small,
    )


def _seed_oss(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Seed-OSS: biases on q, k and v only, which `attention_bias` turns on."""
    a = decoder(read, style, name, source)
    spare = a.hidden if read.flag("attention_bias", default=False) else 0
    return dataclasses.replace(a, per_layer_parameters=a.per_layer_parameters - spare)


def _glm4_moe(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """GLM-4.5: biases on q, k and v only; a flag turns on norms on q and k."""
    qk_norm = "head" if read.flag("use_qk_norm", default=False) else ""
    a = decoder(read, dataclasses.replace(style, qk_norm=qk_norm), name, source)
    spare = a.hidden if read.flag("attention_bias", default=False) else 0
    return dataclasses.replace(a, per_layer_parameters=a.per_layer_parameters - spare)


def _gpt_oss(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """gpt-oss: a sink per head, biases on the router and on every expert, a window on every second layer."""
    a = decoder(read, style, name, source)
    expert = 2 * a.expert_ffn_hidden + a.hidden
    small = a.heads + a.experts * (expert + 1)
    return dataclasses.replace(a, per_layer_parameters=a.per_layer_parameters + small)


def _llama4(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Llama 4: `intermediate_size` is an expert's width, `intermediate_size_mlp` a dense layer's."""
    a = decoder(read, style, name, source)
    if not a.experts:
        return a
    return dataclasses.replace(
        a,
        ffn_hidden=read.count("intermediate_size_mlp", default=a.ffn_hidden),
        expert_ffn_hidden=a.ffn_hidden,
        shared_experts=1,
        moe_layer_step=read.count("interleave_moe_layer_step", default=1),
    )


def _qwen2(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Qwen 2 and 3: the window is off unless the config turns it on; a gate for the shared expert."""
    a = decoder(read, style, name, source)
    if not read.flag("use_sliding_window", default=False):
        a = dataclasses.replace(a, sliding_window=0, sliding_layers=0)
    gate = a.hidden if a.shared_experts else 0
    return dataclasses.replace(a, per_layer_parameters=a.per_layer_parameters + gate)


def _opt(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """OPT: the 350m has a narrower embedding with projections and no final norm."""
    a = decoder(read, style, name, source)
    width = read.count("word_embed_proj_dim", default=a.hidden)
    if width == a.hidden:
        return a
    extra = a.extra_parameters - 2 * a.hidden + 2 * width * a.hidden
    return dataclasses.replace(a, embedding_hidden=width, extra_parameters=extra)


def _falcon(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Falcon: 7B has one key head; 40B and 180B have grouped heads, and a norm each for attention and MLP."""
    new = read.flag("new_decoder_architecture", default=False) or read.has("n_head_kv")
    parallel = read.flag("parallel_attn", default=True)
    biases = ALL_BIASES if read.flag("bias", default=False) else frozenset()
    falcon_style = dataclasses.replace(
        style, norms=2 if new or not parallel else 1, biases=biases, parallel=parallel
    )
    a = decoder(read, falcon_style, name, source)
    if new:
        return a
    return dataclasses.replace(a, kv_heads=1 if read.flag("multi_query", default=True) else a.heads)


def _gpt_bigcode(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """StarCoder: GPT-2 with one key head."""
    own = {"num_key_value_heads": 1} if read.flag("multi_query", default=True) else {}
    return decoder(read, dataclasses.replace(style, defaults=own), name, source)


def _mpt(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """MPT: the MLP's width as a ratio, biases off by default, grouped heads in `attn_config`."""
    attention = read.section("attn_config")
    heads = read.count(*HEADS)
    kv_heads = attention.count("kv_n_heads", default=heads)
    if attention.text("attn_type") == "multiquery_attention":
        kv_heads = 1
    ratio = read.count("expansion_ratio", default=4)
    biased = not read.flag("no_bias", default=True)
    biases = ALL_BIASES if biased else frozenset()
    mpt_style = dataclasses.replace(
        style, biases=biases, norm_bias=biased, defaults={"num_key_value_heads": kv_heads}
    )
    a = decoder(read, mpt_style, name, source)
    return dataclasses.replace(a, ffn_hidden=ratio * a.hidden)


def _cohere(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Command R: the Plus variant normalises queries and keys over their full width."""
    qk_norm = "full" if read.flag("use_qk_norm", default=False) else ""
    return decoder(read, dataclasses.replace(style, qk_norm=qk_norm), name, source)


def _neox(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """GPT-NeoX: a flag, on by default, sets the attention's biases."""
    biases = ALL_BIASES if read.flag("attention_bias", default=True) else frozenset({"mlp"})
    return decoder(read, dataclasses.replace(style, biases=biases), name, source)


def _starcoder2(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """StarCoder 2: one flag sets all biases."""
    biases = ALL_BIASES if read.flag("use_bias", default=True) else frozenset()
    return decoder(read, dataclasses.replace(style, biases=biases), name, source)


_ADAPTERS: Mapping[str, Callable[[Config, DecoderStyle, str, str], Architecture]] = {
    **{kind: read for kind, (_, read) in HYBRIDS.items()},
    "cohere": _cohere,
    "cohere2": _cohere,
    "dbrx": _dbrx,
    "deepseek_v2": latent_decoder,
    "deepseek_v3": latent_decoder,
    "deepseek_v32": _sparse,
    "glm_moe_dsa": _sparse,
    "falcon": _falcon,
    "glm4_moe": _glm4_moe,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _neox,
    "gpt_oss": _gpt_oss,
    "kimi_k2": latent_decoder,
    "llama4_text": _llama4,
    "mpt": _mpt,
    "opt": _opt,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2,
    "qwen3": _qwen2,
    "qwen3_moe": _qwen2,
    "seed_oss": _seed_oss,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}
