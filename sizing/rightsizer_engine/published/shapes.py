"""The architecture of a row: stated dimensions, else the catalog's, else a model of about that size."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture, AttentionKind, Family
from rightsizer_engine.errors import RightsizerError, UnsupportedError
from rightsizer_engine.published import fields

Row = Mapping[str, str]

LATENT_COLUMNS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
"""Widths of multi-head latent attention."""
SIZE_COLUMNS = ("params_b", "active_params_b")
"""Parameters, read only where dimensions are missing."""

_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,3})?)([bm])(\d)?(?![a-z0-9])", re.IGNORECASE)
_ACTIVE = re.compile(r"\bA(\d{1,3}(?:\.\d{1,2})?)B\b", re.IGNORECASE)
_LARGEST = 1e14
_SPARSE = 0.8
"""Share of the parameters below which a token's active ones mean experts."""
_MIX = ("sliding_layers", "attention_free_layers", "linear_layers", "mlp_free_layers")
"""Counts of layers of a kind, which a model with fewer layers has in the same proportions."""
_PLAIN = 0.3
"""A model with a plain MLP counts as this much further from a size: most since 2023 are gated."""


def _known_model(row: Row, hidden: int) -> Architecture | None:
    """The catalog's model of that name, if its width agrees with the row's."""
    name = fields.text(row, "model_name")
    for candidate in (name, name.split("(")[0].strip()):
        model = _model(candidate) if candidate else None
        if model is not None and hidden in {0, model.hidden}:
            return model
    return None


@lru_cache(maxsize=4096)
def _model(name: str) -> Architecture | None:
    """The catalog's model or None, cached because tables name one model in many rows."""
    try:
        return lookup.model(name)
    except RightsizerError:
        return None


def dimensions(row: Row) -> tuple[Architecture, str]:
    """The architecture, and what of it was assumed ("": nothing).

    Dimensions are the row's, else the recognised model's. Without either, a model of the catalog of about
    that size stands in.
    """
    hidden, layers = fields.count(row, "hidden"), fields.count(row, "layers")
    known, assumed = _known_model(row, hidden), ""
    if known is None and not (hidden and layers and fields.count(row, "heads")):
        known, assumed = _stand_in(row, hidden, layers)
    return _stated(row, known), assumed


def _stand_in(row: Row, hidden: int, layers: int) -> tuple[Architecture, str]:
    """A catalog decoder of the stated size, with the row's width and as many layers as the size takes."""
    total, active = _sizes(row)
    if not total and not (hidden and layers):
        raise UnsupportedError("layers: not stated, and the model is not in the catalog and has no size")
    total = total or 12.0 * layers * hidden**2
    sparse = fields.count(row, "moe_experts") > 1 or 0 < active < _SPARSE * total
    near = min(_decoders(sparse), key=lambda m: _distance(m, total, active if sparse else 0.0))
    shape = _widened(near, hidden) if hidden else near
    ends = shape.vocab * shape.hidden * (1 if shape.tied_embeddings else 2)
    one = (shape.parameters_total - ends) / shape.layers
    layers = layers or max(1, round((total - ends) / one))
    shape = replace(
        shape,
        name=fields.text(row, "model_name") or "unnamed",
        layers=layers,
        mtp_layers=0,
        dense_layers=min(near.dense_layers, layers),
        sliding_layers=round(near.sliding_layers * layers / near.layers),
    )
    return shape, f"dimensions not stated: shaped like {near.name}, {total / 1e9:.3g}B parameters"


def _widened(near: Architecture, hidden: int) -> Architecture:
    """A shape of another width, with the same proportions and heads of the same width."""
    heads = max(1, hidden // max(1, near.head_dim))
    return replace(
        near,
        hidden=hidden,
        heads=heads,
        kv_heads=max(1, round(near.kv_heads * heads / near.heads)),
        ffn_hidden=max(1, round(near.ffn_hidden * hidden / near.hidden)),
        expert_ffn_hidden=round(near.expert_ffn_hidden * hidden / near.hidden),
    )


@lru_cache(maxsize=2)
def _decoders(sparse: bool) -> tuple[Architecture, ...]:
    """Plain decoders: no hybrid and no image tower stands in for a model that nobody described."""
    return tuple(m for m in lookup.models() if _plain(m) and (m.experts > 0) == sparse)


def _plain(m: Architecture) -> bool:
    unusual = m.attention_free_layers or m.linear_layers or m.encoder_layers or m.indexer_width
    return m.family is Family.DECODER and not unusual


def _distance(model: Architecture, total: float, active: float) -> float:
    """The distance of a model from a size, in the logarithm; plain MLPs only if no other model is near."""
    apart = abs(math.log(model.parameters_total / total)) + (0.0 if model.gated_mlp else _PLAIN)
    return apart + (abs(math.log(model.parameters_active / active)) if active else 0.0)


def _sizes(row: Row) -> tuple[float, float]:
    """(parameters in all, those active on a token) as stated or as in the model's name; 0: not known."""
    name = fields.text(row, "model_name")
    total, active = fields.number(row, "params_b") * 1e9, fields.number(row, "active_params_b") * 1e9
    if not total and (match := _SIZE.search(name)):
        total = (float(match[1]) + int(match[3] or 0) / 10) * (1e6 if match[2] in "mM" else 1e9)
    if not active and (match := _ACTIVE.search(name)):
        active = float(match[1]) * 1e9
    return min(total, _LARGEST), min(active, _LARGEST)


def _stated(row: Row, known: Architecture | None) -> Architecture:
    """The known model with the row's own dimensions."""
    hidden = fields.count(row, "hidden", known.hidden if known else 0)
    layers = fields.count(row, "layers", known.layers if known else 0)
    heads = fields.count(row, "heads", known.heads if known else 0)
    base = known or Architecture(
        name=fields.text(row, "model_name") or "unnamed",
        layers=layers,
        hidden=hidden,
        ffn_hidden=0,
        heads=heads,
        kv_heads=heads,
        head_dim=max(1, hidden // heads),
        vocab=50257,
    )
    shape = replace(
        base,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(row, base, heads),
        head_dim=fields.count(row, "head_dim", max(1, base.head_dim)),
        vocab=fields.count(row, "vocab", max(1, base.vocab)),
        gated_mlp=_or(fields.flag(row, "gated_mlp"), base.gated_mlp),
        tied_embeddings=_or(fields.flag(row, "tied_embeddings"), base.tied_embeddings),
    )
    shape = _latent(row, _truncated(row, shape, base))
    return _feed_forward(row, replace(shape, mtp_layers=fields.count(row, "mtp_layers", shape.mtp_layers)))


def _latent(row: Row, shape: Architecture) -> Architecture:
    """The shape with latent attention if the row states its widths."""
    names = LATENT_COLUMNS
    stated: dict[str, Any] = {name: fields.count(row, name, getattr(shape, name)) for name in names}
    if not fields.count(row, "kv_lora_rank"):
        return shape
    return replace(shape, attention=AttentionKind.LATENT, kv_heads=shape.heads, **stated)


def _or(stated: bool | None, otherwise: bool) -> bool:
    return otherwise if stated is None else stated


def _kv_heads(row: Row, base: Architecture, heads: int) -> int:
    """Key/value heads; latent attention has one for each head."""
    if base.attention == AttentionKind.LATENT:
        return heads
    return min(heads, max(1, fields.count(row, "kv_heads", base.kv_heads)))


def _truncated(row: Row, shape: Architecture, base: Architecture) -> Architecture:
    """A model with fewer layers keeps its mix of layer types and drops multi-token prediction."""
    dense = fields.count(row, "dense_layers", math.ceil(base.dense_layers * shape.layers / base.layers))
    if shape.layers == base.layers:
        return replace(shape, dense_layers=min(dense, shape.layers))
    mix: dict[str, Any] = {name: round(getattr(base, name) * shape.layers / base.layers) for name in _MIX}
    return replace(shape, dense_layers=min(dense, shape.layers), mtp_layers=0, **mix)


def _feed_forward(row: Row, shape: Architecture) -> Architecture:
    """Dense and expert widths; without a dense width the experts' width is used."""
    experts = fields.count(row, "moe_experts", shape.experts)
    ffn = fields.count(row, "ffn_hidden", shape.ffn_hidden)
    expert_ffn = fields.count(row, "moe_ffn_hidden", shape.expert_ffn_hidden) or ffn
    ffn = ffn or expert_ffn or 4 * shape.hidden
    if experts < 2:
        return replace(shape, ffn_hidden=ffn, experts=0, top_k=0, shared_experts=0, dense_layers=0)
    return replace(
        shape,
        ffn_hidden=ffn,
        experts=experts,
        expert_ffn_hidden=expert_ffn or ffn,
        top_k=min(experts, max(1, fields.count(row, "moe_topk", shape.top_k))),
        shared_experts=fields.count(row, "moe_shared_experts", shape.shared_experts),
    )
