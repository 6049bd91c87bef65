"""Read hybrids from their Hugging Face config: layers of attention, linear mixers and feed-forwards.

A mixer's FLOPs are those of domain/linear.py. Its saved elements are the inputs of its kernels: projections,
the convolution's output (Mamba-2's fused kernel computes it again), the scan's output before and after its
gate. The layer lists and weights are those of huggingface/transformers 5.23.0.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from rightsizer_engine.catalog.config_keys import Config
from rightsizer_engine.catalog.decoders import DecoderStyle, decoder, latent_decoder, with_experts
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.linear import (
    delta_rule_flop,
    lightning_flop,
    selective_scan_flop,
    state_space_flop,
)
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable

_DELTA_CHUNK = 64
"""Tokens of a chunk in flash-linear-attention's delta rule."""
_MOST_MIXER = 2**20
"""Upper bound of a mixer's counts: the largest published one has 256 heads, 2**14 wide."""
_ATTENTION = frozenset({"attention", "full_attention", "sliding_attention", "hybrid", "*"})
_LINEAR = frozenset({"linear_attention", "mamba", "mamba2", "conv", "hybrid", "M"})
_FEED_FORWARD = frozenset({"mlp", "moe", "-", "E"})


@immutable
class _Mixer:
    """One linear mixer; `small` counts the weights that no token multiplies with as a matrix."""

    heads: int
    into: int
    inner: int
    saved: int
    state: int
    scan_flop: int
    small: int


def _mixed(a: Architecture, mixer: _Mixer, kinds: Sequence[str], *, attention_small: int = 0) -> Architecture:
    """The network with these kinds of layers; `attention_small`: small weights of attention layers alone."""
    attending = sum(kind in _ATTENTION for kind in kinds)
    linear = sum(kind in _LINEAR for kind in kinds)
    small = attending * attention_small + linear * mixer.small
    per_layer, rest = divmod(small, len(kinds))
    return dataclasses.replace(
        a,
        layers=len(kinds),
        attention_free_layers=len(kinds) - attending,
        linear_layers=linear,
        linear_heads=mixer.heads,
        linear_in=mixer.into,
        linear_inner=mixer.inner,
        linear_saved=mixer.saved,
        linear_state=mixer.state,
        linear_scan_flop=mixer.scan_flop,
        per_layer_parameters=a.per_layer_parameters + per_layer,
        extra_parameters=a.extra_parameters + rest,
    )


def _kinds(read: Config, layers: int, default: Callable[[int], str]) -> list[str]:
    """The kind of every layer: the config's list, else the model type's rule."""
    listed = read.items("layer_types") or read.items("layers_block_type")
    listed = listed or read.text("hybrid_override_pattern")
    if not listed:
        return [default(index) for index in range(layers)]
    known = _ATTENTION | _LINEAR | _FEED_FORWARD
    strange = next((kind for kind in listed if not isinstance(kind, str) or kind not in known), None)
    if strange is not None or len(listed) != layers:
        remedy = f"must list one of {', '.join(sorted(known))} for each of {layers} layers"
        raise InputError(f"{read.path}.layer_types", value=strange or len(listed), remedy=remedy)
    return [str(kind) for kind in listed]


# --- mixers ------------------------------------------------------------


def _mamba2(read: Config, hidden: int, *, norm: bool = True) -> _Mixer:
    """Mamba-2: one projection to gate, values, keys, queries and step sizes; a convolution over three."""
    heads = read.count("mamba_n_heads", "mamba_num_heads", "num_heads", default=128, most=_MOST_MIXER)
    inner = read.count("mamba_d_ssm", default=0, least=0) or heads * _head(read, hidden, heads)
    head = read.quotient("mamba_n_heads", inner, heads)
    state = read.count("mamba_d_state", "ssm_state_size", "state_size", default=128)
    groups = read.count("mamba_n_groups", "n_groups", default=1)
    taps = read.count("mamba_d_conv", "conv_kernel", default=4)
    chunk = read.count("mamba_chunk_size", "chunk_size", default=256)
    convolved = inner + 2 * groups * state
    into = inner + convolved + heads
    scan = state_space_flop(heads=heads, groups=groups, state=state, head=head, chunk=chunk)
    return _Mixer(
        heads=heads,
        into=into,
        inner=inner,
        saved=into + 2 * inner,
        state=inner * state + convolved * taps,
        scan_flop=scan + 2 * taps * convolved,
        small=convolved * (taps + 1) + 3 * heads + (inner if norm else 0),
    )


def _head(read: Config, hidden: int, heads: int) -> int:
    """The width of a mixer's head; "auto" is the expanded width divided by the heads."""
    for key in ("mamba_d_head", "mamba_head_dim"):
        if read.has(key) and not read.is_text(key):
            return read.count(key)
    if read.text("model_type") == "mamba2" and read.has("head_dim"):
        return read.count("head_dim")
    wide = read.count("mamba_expand", "expand", default=2) * hidden
    return read.quotient("mamba_n_heads", wide, heads)


def _mamba1(read: Config, hidden: int, *, norms: bool) -> _Mixer:
    """Mamba-1: step sizes through a low rank, a state per channel; Jamba adds three norms."""
    expand = read.count("mamba_expand", "expand", default=2)
    inner, state = expand * hidden, read.count("mamba_d_state", "state_size", default=16)
    taps = read.count("mamba_d_conv", "conv_kernel", default=4)
    rank = -(-hidden // 16)
    for key in ("mamba_dt_rank", "time_step_rank"):
        rank = read.count(key) if read.has(key) and not read.is_text(key) else rank
    return _Mixer(
        heads=0,
        into=2 * inner + expand * (2 * rank + 2 * state),
        inner=inner,
        saved=6 * inner,
        state=inner * (state + taps),
        scan_flop=selective_scan_flop(inner=inner, state=state) + 2 * taps * inner,
        small=inner * (taps + 3 + state) + (rank + 2 * state if norms else 0),
    )


def _delta_rule(read: Config) -> _Mixer:
    """Gated DeltaNet: queries, keys and values through a convolution; a gate; two scalars for each head."""
    heads = read.count("linear_num_value_heads", default=32, most=_MOST_MIXER)
    key_heads = read.count("linear_num_key_heads", default=16, most=_MOST_MIXER)
    keys, values = (read.count(f"linear_{kind}_head_dim", default=128) for kind in ("key", "value"))
    taps = read.count("linear_conv_kernel_dim", default=4)
    wide = heads * values
    convolved = 2 * key_heads * keys + wide
    into = convolved + wide + 2 * heads
    scan = delta_rule_flop(heads=heads, keys=keys, values=values, chunk=_DELTA_CHUNK)
    return _Mixer(
        heads=heads,
        into=into,
        inner=wide,
        saved=into + convolved + 2 * wide + _DELTA_CHUNK * heads,
        state=heads * keys * values + convolved * taps,
        scan_flop=scan + 2 * taps * convolved,
        small=convolved * taps + 2 * heads + values,
    )


def _kimi_delta(read: Config, hidden: int) -> _Mixer:
    """Kimi Delta Attention (arXiv:2510.26692): a decay for each channel, and a gate, both of low rank."""
    own = read.section("linear_attn_config")
    heads, width = own.count("num_heads", default=32, most=_MOST_MIXER), own.count("head_dim", default=128)
    taps = own.count("short_conv_kernel_size", default=4)
    wide = heads * width
    low_rank, rest = divmod(2 * width * wide, hidden)
    into = 3 * wide + heads + 2 * width + low_rank
    scan = delta_rule_flop(heads=heads, keys=width, values=width, chunk=_DELTA_CHUNK)
    return _Mixer(
        heads=heads,
        into=into,
        inner=wide,
        saved=into + 7 * wide + _DELTA_CHUNK * heads,
        state=heads * width * width + 3 * wide * taps,
        scan_flop=scan + 6 * taps * wide,
        small=3 * wide * taps + heads + wide + width + rest,
    )


def _lightning(read: Config, a: Architecture) -> _Mixer:
    """Lightning attention: queries, keys, values and a gate; a norm over all heads."""
    wide, block = a.heads * a.head_dim, read.count("block_size", default=256)
    scan = lightning_flop(heads=a.heads, keys=a.head_dim, values=a.head_dim, chunk=block)
    return _Mixer(
        heads=a.heads,
        into=4 * wide,
        inner=wide,
        saved=7 * wide,
        state=wide * a.head_dim,
        scan_flop=scan,
        small=wide,
    )


# --- model types ------------------------------------------------------------


def _qwen3_next(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Qwen3-Next and Qwen3.5: Gated DeltaNet, every fourth layer gated attention."""
    a = decoder(read, style, name, source)
    period = read.count("full_attention_interval", default=4)
    kinds = _kinds(read, a.layers, lambda i: "linear_attention" if (i + 1) % period else "full_attention")
    gate = a.hidden if a.shared_experts else 0
    a = dataclasses.replace(a, attention_gate=True, per_layer_parameters=a.per_layer_parameters + gate)
    return _mixed(a, _delta_rule(read), kinds, attention_small=2 * a.head_dim)


def _olmo_hybrid(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """OLMo Hybrid: Gated DeltaNet with norms over the full width in its attention layers."""
    a = decoder(read, style, name, source)
    kinds = _kinds(read, a.layers, lambda i: "linear_attention" if (i + 1) % 4 else "full_attention")
    return _mixed(a, _delta_rule(read), kinds, attention_small=(a.heads + a.kv_heads) * a.head_dim)


def _kimi_linear(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Kimi Linear: Kimi Delta Attention, every fourth layer latent attention."""
    a = latent_decoder(read, style, name, source)
    listed = {i for i in read.section("linear_attn_config").items("full_attn_layers") if isinstance(i, int)}
    full = listed or {i for i in range(1, a.layers + 1) if i % 4 == 0}
    kinds = _kinds(read, a.layers, lambda i: "full_attention" if i + 1 in full else "linear_attention")
    latent = a.q_lora_rank + a.kv_lora_rank
    a = dataclasses.replace(a, per_layer_parameters=a.per_layer_parameters - latent)
    return _mixed(a, _kimi_delta(read, a.hidden), kinds, attention_small=latent)


def _minimax(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """MiniMax-Text-01: lightning attention, every eighth layer full attention."""
    a = decoder(read, style, name, source)
    listed = read.items("attn_type_list")
    if listed and len(listed) == a.layers:
        kinds = ["full_attention" if kind == 1 else "linear_attention" for kind in listed]
    else:
        kinds = _kinds(read, a.layers, lambda i: "linear_attention" if i % 2 else "full_attention")
    return _mixed(a, _lightning(read, a), kinds)


def _nemotron_h(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Nemotron-H and Nemotron 3: a layer is a mixer, attention, an MLP or experts, each with one norm."""
    listed = read.items("layers_block_type") or read.text("hybrid_override_pattern")
    if not listed:
        raise InputError(
            f"{read.path}.hybrid_override_pattern", value=None, remedy="missing; lists the layers"
        )
    kinds = _kinds(read, len(listed), str)
    experts = sum(kind in ("E", "moe") for kind in kinds)
    a = decoder(read, style, name, source, layers=len(kinds), experts=experts > 0)
    free = len(kinds) - sum(kind in _FEED_FORWARD for kind in kinds)
    a = _latent_experts(read, a, experts)
    a = dataclasses.replace(
        a, mlp_free_layers=free, dense_layers=len(kinds) - free - experts if experts else 0
    )
    return _mixed(a, _mamba2(read, a.hidden), kinds)


def _latent_experts(read: Config, a: Architecture, layers: int) -> Architecture:
    """Nemotron 3 Super: routed experts work on a narrower token, as narrower experts on the whole one would.

    The projections to and from that token count among the small parameters.
    """
    latent = read.count("moe_latent_size", default=0, least=0)
    if not latent or not a.experts:
        return a
    width = read.quotient("moe_latent_size", a.expert_ffn_hidden * latent, a.hidden)
    shared = read.quotient("moe_latent_size", a.shared_experts * a.expert_ffn_hidden, max(width, 1))
    extra = a.extra_parameters + layers * 2 * a.hidden * latent
    return dataclasses.replace(a, expert_ffn_hidden=width, shared_experts=shared, extra_parameters=extra)


def _granite_hybrid(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Granite 4: Mamba-2 and attention; each layer has a shared MLP, and most models experts beside it."""
    experts = read.count("num_local_experts", default=8, least=0)
    a = decoder(read, style, name, source, experts=False)
    shared = read.count("shared_intermediate_size", default=1024)
    if experts:
        own = dataclasses.replace(with_experts(read, a), expert_ffn_hidden=a.ffn_hidden)
        a = dataclasses.replace(own, shared_experts=read.quotient("intermediate_size", shared, a.ffn_hidden))
    else:
        a = dataclasses.replace(a, ffn_hidden=shared)
    kinds = _kinds(read, a.layers, lambda _: "mamba")
    return _mixed(a, _mamba2(read, a.hidden), kinds)


def _falcon_h1(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    a = decoder(read, style, name, source)
    norm = read.flag("mamba_rms_norm", default=False)
    return _mixed(a, _mamba2(read, a.hidden, norm=norm), ["hybrid"] * a.layers)


def _bamba(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Bamba: Mamba-2 but in the listed layers."""
    a = decoder(read, style, name, source)
    full = read.items("attn_layer_indices")
    kinds = _kinds(read, a.layers, lambda i: "attention" if i in full else "mamba")
    return _mixed(a, _mamba2(read, a.hidden), kinds)


def _jamba(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Jamba: Mamba-1, attention in every eighth layer, experts in every second."""
    a = decoder(read, style, name, source)
    period, offset = read.count("attn_layer_period", default=8), read.count("attn_layer_offset", default=4)
    kinds = _kinds(read, a.layers, lambda i: "attention" if i % period == offset % period else "mamba")
    if a.experts:
        a = dataclasses.replace(a, moe_layer_step=read.count("expert_layer_period", default=2))
    return _mixed(a, _mamba1(read, a.hidden, norms=True), kinds)


def _lfm2(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """LFM2: short gated convolutions and attention."""
    a = decoder(read, style, name, source)
    taps, h = read.count("conv_L_cache", default=3), a.hidden
    listed = read.items("full_attn_idxs")
    kinds = _kinds(read, a.layers, lambda i: "full_attention" if not listed or i in listed else "conv")
    if read.flag("block_auto_adjust_ff_dim", default=read.text("model_type") == "lfm2"):
        multiple, ffn = read.count("block_multiple_of", default=256), 2 * a.ffn_hidden // 3
        a = dataclasses.replace(a, ffn_hidden=-(-ffn // multiple) * multiple)
    mixer = _Mixer(
        heads=0, into=3 * h, inner=h, saved=5 * h, state=h * taps, scan_flop=2 * taps * h, small=h * taps
    )
    return _mixed(a, mixer, kinds, attention_small=2 * a.head_dim)


def _pure(read: Config, style: DecoderStyle, name: str, source: str) -> Architecture:
    """Mamba, Falcon-Mamba and Mamba-2: mixers alone."""
    a = decoder(read, style, name, source)
    second = read.text("model_type") == "mamba2"
    mixer = _mamba2(read, a.hidden) if second else _mamba1(read, a.hidden, norms=False)
    return _mixed(dataclasses.replace(a, mlp_free_layers=a.layers), mixer, ["mamba"] * a.layers)


Reader = Callable[[Config, DecoderStyle, str, str], Architecture]

_HEADLESS = DecoderStyle(norms=1, tied=True, defaults={"num_attention_heads": 1})

HYBRIDS: Mapping[str, tuple[DecoderStyle, Reader]] = {
    "bamba": (DecoderStyle(), _bamba),
    "falcon_h1": (DecoderStyle(), _falcon_h1),
    "falcon_mamba": (_HEADLESS, _pure),
    "granitemoehybrid": (DecoderStyle(), _granite_hybrid),
    "jamba": (DecoderStyle(), _jamba),
    "kimi_linear": (DecoderStyle(), _kimi_linear),
    "lfm2": (DecoderStyle(tied=True), _lfm2),
    "lfm2_moe": (DecoderStyle(tied=True), _lfm2),
    "mamba": (_HEADLESS, _pure),
    "mamba2": (_HEADLESS, _pure),
    "minimax": (DecoderStyle(), _minimax),
    "nemotron_h": (DecoderStyle(norms=1, gated=False), _nemotron_h),
    "olmo_hybrid": (DecoderStyle(), _olmo_hybrid),
    "qwen3_5_moe_text": (DecoderStyle(head_dim=256), _qwen3_next),
    "qwen3_5_text": (DecoderStyle(head_dim=256), _qwen3_next),
    "qwen3_next": (DecoderStyle(head_dim=256), _qwen3_next),
}
"""Model type -> its style and the reader of its config."""
