"""Look up models by their catalog name, their Hugging Face id, or the id of a variant."""

import dataclasses
from functools import cache
from typing import Any

from rightsizer_engine.catalog import variants
from rightsizer_engine.catalog.naming import Index, Spellings, build_index, lookup, normal
from rightsizer_engine.catalog.table import Row, named, one, read, split
from rightsizer_engine.domain.architecture import Architecture, AttentionKind, Family
from rightsizer_engine.errors import UnsupportedError

_UNET = "not supported: a convolutional UNet; the engine models transformers only"


def model(name: str) -> Architecture:
    """The architecture by its catalog name or Hugging Face id; case and punctuation do not matter.

    The id of a fine-tuned or quantised variant means its base model; `doubt` then says so.
    """
    rows = _model_rows()
    row = rows.get(name) or named("models.csv", "aliases").get(name)
    doubt = ""
    if row is None:
        row, doubt = _variant(name)
    if row["family"] == "unet":
        raise UnsupportedError(f"model {row['name']!r}: {_UNET}")
    return dataclasses.replace(_model(row["name"]), doubt=doubt) if doubt else _model(row["name"])


def _variant(name: str) -> tuple[Row, str]:
    """The row of a name that is not written so in the catalog, and how the name was read."""
    rows = _model_rows()
    if any(_of_that_size(rows[found], name) for found in lookup(_model_index(), name)):
        return rows[one("model", name, _model_index())], ""
    found = variants.find(name, _variant_index())
    fitting = tuple(model for model in found.models if _of_that_size(rows[model], name))
    if len(fitting) != 1:
        return rows[one("model", name, _model_index(), but=normal(name), ambiguous=fitting)], ""
    row = rows[fitting[0]]
    doubt = f"{name!r} is read as a fine-tuned {row['name']}" if found.fine_tuned else ""
    if found.quantised:
        doubt = doubt or f"{name!r} is read as {row['name']}"
        doubt += "; its weights are quantised: all methods but qlora start from the 16-bit ones"
    return row, doubt


def _of_that_size(row: Row, name: str) -> bool:
    """Whether a size that the name states is one of the row's, if both state any."""
    stated, known = variants.sizes(name), variants.sizes(f"{row['name']}|{row['aliases']}")
    return not stated or not known or bool(stated & known)


@cache
def models() -> tuple[Architecture, ...]:
    """Every supported architecture."""
    return tuple(_model(row["name"]) for row in _model_rows().values() if row["family"] != "unet")


def model_aliases(name: str) -> tuple[str, ...]:
    """The aliases of a catalog model, such as its Hugging Face ids."""
    return tuple(split(_model_rows()[model(name).name]["aliases"]))


_COUNTS = (
    "layers",
    "hidden",
    "ffn_hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "max_sequence",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "sliding_window",
    "sliding_layers",
    "experts",
    "top_k",
    "expert_ffn_hidden",
    "shared_experts",
    "dense_layers",
    "mlp_free_layers",
    "mtp_layers",
    "attention_free_layers",
    "indexer_width",
    "linear_layers",
    "linear_heads",
    "linear_in",
    "linear_inner",
    "linear_saved",
    "linear_state",
    "linear_scan_flop",
    "encoder_layers",
    "encoder_tokens",
    "encoder_hidden",
    "encoder_ffn_hidden",
    "encoder_heads",
    "encoder_per_layer_parameters",
    "fixed_tokens",
    "embedding_hidden",
    "per_layer_parameters",
    "extra_parameters",
)


@cache
def _model(name: str) -> Architecture:
    row = _model_rows()[name]
    counts: dict[str, Any] = {key: int(row[key] or 0) for key in _COUNTS}
    return Architecture(
        name=name,
        family=Family(row["family"]),
        attention=AttentionKind(row["attention"]),
        gated_mlp=row["gated_mlp"] == "1",
        tied_embeddings=row["tied_embeddings"] == "1",
        parallel_residual=row["parallel_residual"] == "1",
        attention_gate=row["attention_gate"] == "1",
        moe_layer_step=int(row["moe_layer_step"] or 1),
        source=row["source"],
        **counts,
    )


@cache
def _model_rows() -> dict[str, Row]:
    return {row["name"]: row for row in read("models.csv")}


@cache
def _model_index() -> Index:
    return build_index(_model_names(row) for row in _model_rows().values())


@cache
def _variant_index() -> variants.VariantIndex:
    rows = _model_rows().values()
    return variants.index(
        (name, row["name"]) for row in rows for name in (row["name"], *split(row["aliases"]))
    )


def _model_names(row: Row) -> Spellings:
    exact = (row["name"], *split(row["aliases"]))
    bare = [name.rpartition("/")[2] for name in exact if "/" in name]
    return Spellings(
        name=row["name"],
        exact=exact,
        derived=(*bare, *(name.removesuffix("-hf") for name in bare)),
    )
