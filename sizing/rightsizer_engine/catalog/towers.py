"""Read the image tower and the projector of a vision-language model from their Hugging Face config.

A sequence is taken to hold one image: of the tower's own size, or 768 x 768 pixels where any size goes
(LLaMA-Factory's default limit, image_max_pixels). The tower is priced as trained, with full attention;
Llama 3.2's cross-attention layers as self-attention.
"""

import dataclasses
from collections.abc import Callable, Mapping

from rightsizer_engine.catalog.config_keys import Config
from rightsizer_engine.domain.architecture import Architecture, encoder_parameters
from rightsizer_engine.values import immutable

_FREE_PIXELS = 768
_MOST_PIXELS = 2**14
_ASPECT_RATIOS = 9
"""Position tables of Llama 3.2's tower: eight arrangements of tiles, and none."""
_MERGED = 4
"""Patches that most projectors join into one token (2 x 2)."""
_SQUEEZED = 16
"""Patches that SmolVLM joins into one token (4 x 4)."""


@immutable
class _Style:
    """Properties of a tower that are not in its config; `projector` gives its weights."""

    projector: Callable[[int, int], int]
    gated: bool = False
    any_size: bool = False
    tables: bool = True


def _two_layers(tower: int, hidden: int) -> int:
    """LLaVA: a layer to the decoder's width and one of that width."""
    return tower * hidden + hidden * hidden + 2 * hidden


def _one_layer(tower: int, hidden: int) -> int:
    """Gemma 3 and Llama 3.2: a norm and a projection."""
    return tower * hidden + hidden


def _merger(tower: int, hidden: int) -> int:
    """Qwen-VL: joins 2 x 2 patches, a layer of that width, and one to the decoder's."""
    wide = _MERGED * tower
    return wide * wide + wide + wide * hidden + hidden + 2 * tower


def _mergers(tower: int, hidden: int) -> int:
    """Qwen3-VL: one merger at the end and one at each of three layers."""
    return 4 * _merger(tower, hidden)


def _shuffle(tower: int, hidden: int) -> int:
    """InternVL: joins 2 x 2 patches, a layer to the decoder's width and one of that width."""
    return _MERGED * tower * hidden + hidden * hidden + 2 * hidden + 2 * _MERGED * tower


def _squeezed(tower: int, hidden: int) -> int:
    """Idefics 3 and SmolVLM: joins 4 x 4 patches (some models 2 x 2 or 3 x 3), then a projection."""
    return _SQUEEZED * tower * hidden


def _joined(tower: int, hidden: int) -> int:
    """Mistral 3: joins 2 x 2 patches, then LLaVA's two layers."""
    return _MERGED * tower * tower + _two_layers(tower, hidden)


_STYLES: Mapping[str, _Style] = {
    "gemma3": _Style(projector=_one_layer),
    "idefics3": _Style(projector=_squeezed),
    "internvl": _Style(projector=_shuffle),
    "internvl_chat": _Style(projector=_shuffle),
    "llava": _Style(projector=_two_layers),
    "llava_next": _Style(projector=_two_layers),
    "llava_onevision": _Style(projector=_two_layers),
    "mllama": _Style(projector=_one_layer),
    "mistral3": _Style(projector=_joined, gated=True, any_size=True, tables=False),
    "paligemma": _Style(projector=_one_layer),
    "pixtral": _Style(projector=_two_layers, gated=True, any_size=True, tables=False),
    "qwen2_5_vl": _Style(projector=_merger, gated=True, any_size=True, tables=False),
    "qwen2_vl": _Style(projector=_merger, any_size=True, tables=False),
    "qwen3_5": _Style(projector=_merger, any_size=True),
    "qwen3_5_moe": _Style(projector=_merger, any_size=True),
    "qwen3_vl": _Style(projector=_mergers, any_size=True),
    "qwen3_vl_moe": _Style(projector=_mergers, any_size=True),
    "smolvlm": _Style(projector=_squeezed),
}


def with_tower(read: Config, decoder: Architecture, kind: str) -> Architecture:
    """The decoder with the tower in `encoder_*`, its tables and its projector in `extra_parameters`."""
    vision = read.section("vision_config")
    style = _STYLES.get(kind, _Style(projector=_two_layers))
    if vision.text("model_type") == "pixtral":
        style = dataclasses.replace(style, gated=True, any_size=True, tables=False)
    hidden = vision.count("embed_dim", "hidden_size", "width", default=1024)
    layers = vision.layers("depth", "num_hidden_layers", "num_layers", default=24)
    layers += vision.count("num_global_layers", default=0, least=0)
    tiles = vision.count("max_num_tiles", default=1)
    ffn = vision.count("intermediate_size", default=vision.count("mlp_ratio", default=4) * hidden)
    patch = vision.side("patch_size", default=14, most=_MOST_PIXELS)
    side = vision.side("image_size", default=_FREE_PIXELS, most=_MOST_PIXELS)
    tokens = max(1, (_FREE_PIXELS if style.any_size else side) // patch) ** 2 * tiles
    matrices = 3 if style.gated else 2
    exact = layers * (4 * hidden * hidden + matrices * hidden * ffn)
    frames = vision.count("temporal_patch_size", default=1)
    positions = vision.count("num_position_embeddings", default=(side // patch) ** 2 + 1)
    positions *= tiles * (_ASPECT_RATIOS if tiles > 1 else 1)
    projector = style.projector(vision.count("vision_output_dim", default=hidden), decoder.hidden)
    outside = 3 * frames * patch * patch * hidden + projector + 3 * hidden
    outside += positions * hidden if style.tables else 0
    tower = dataclasses.replace(
        decoder,
        encoder_layers=layers,
        encoder_tokens=tokens,
        encoder_hidden=hidden,
        # head width and gate are the decoder's in the formulas: heads and feed-forward are counted in those
        encoder_heads=max(1, round(hidden / decoder.head_dim)),
        encoder_ffn_hidden=max(1, round(ffn * matrices / (3 if decoder.gated_mlp else 2))),
        encoder_per_layer_parameters=9 * hidden + ffn,
    )
    rest = exact - int(encoder_parameters(tower))
    return dataclasses.replace(tower, extra_parameters=decoder.extra_parameters + outside + rest)
