"""Read encoders, encoder-decoders and vision networks from their Hugging Face config."""

import dataclasses
from collections.abc import Callable, Mapping

from rightsizer_engine.catalog.config_keys import Config
from rightsizer_engine.domain.architecture import Architecture, Family

_MOST_PIXELS = 2**14


def _biases_and_norms(hidden: int, ffn: int) -> int:
    """A layer's small parameters: two norms of 2 * hidden, biases on q, k, v, o and the MLP."""
    return 4 * hidden + 4 * hidden + ffn + hidden


def _bert(read: Config, name: str) -> Architecture:
    """BERT and RoBERTa: position and type tables, an embedding norm, a pooler; no head."""
    hidden, heads = read.count("hidden_size", default=768), read.count("num_attention_heads", default=12)
    ffn = read.count("intermediate_size", default=3072)
    positions = read.count("max_position_embeddings", default=512)
    types = read.count("type_vocab_size", default=2, least=0)
    return Architecture(
        name=name,
        family=Family.ENCODER,
        layers=read.layers("num_hidden_layers", default=12),
        hidden=hidden,
        ffn_hidden=ffn,
        heads=heads,
        kv_heads=heads,
        head_dim=read.quotient("num_attention_heads", hidden, heads),
        vocab=read.count("vocab_size", default=30_522),
        gated_mlp=False,
        tied_embeddings=True,
        max_sequence=positions,
        per_layer_parameters=_biases_and_norms(hidden, ffn),
        extra_parameters=(positions + types + 2) * hidden + hidden * hidden + hidden,
        source=_source(read),
    )


def _modernbert(read: Config, name: str) -> Architecture:
    """ModernBERT: gated, without biases; two layers of three attend to a window; rotary positions."""
    hidden, heads = read.count("hidden_size", default=768), read.count("num_attention_heads", default=12)
    layers = read.layers("num_hidden_layers", default=22)
    period = read.count("global_attn_every_n_layers", default=3)
    return Architecture(
        name=name,
        family=Family.ENCODER,
        layers=layers,
        hidden=hidden,
        ffn_hidden=read.count("intermediate_size", default=1152),
        heads=heads,
        kv_heads=heads,
        head_dim=read.quotient("num_attention_heads", hidden, heads),
        vocab=read.count("vocab_size", default=50_368),
        gated_mlp=True,
        tied_embeddings=True,
        max_sequence=read.count("max_position_embeddings", default=8192),
        sliding_window=read.count("local_attention", default=128),
        sliding_layers=layers - -(-layers // period),
        per_layer_parameters=2 * hidden,
        extra_parameters=2 * hidden,
        source=_source(read),
    )


def _distilbert(read: Config, name: str) -> Architecture:
    """DistilBERT: BERT without types and pooler, under keys of its own."""
    keys = {"hidden_size": "dim", "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"}
    own: dict[str, object] = {key: read.count(value) for key, value in keys.items() if read.has(value)}
    own |= {"num_hidden_layers": read.layers("n_layers", default=6), "type_vocab_size": 0}
    own |= {"vocab_size": read.count("vocab_size", default=30_522), "model_type": "distilbert"}
    a = _bert(Config(own, read.path), name)
    return _grown(a, -a.hidden * (a.hidden + 1))


def _deberta(read: Config, name: str) -> Architecture:
    """DeBERTa: BERT with a table of relative positions in place of positions and pooler.

    Version 1 projects the table in every layer; versions 2 and 3 share the projections of the content.
    Its scores of content against positions are not priced: some 20 % of a step at 512 tokens.
    """
    a = _bert(read, name)
    spare = a.max_sequence * a.hidden if not read.flag("position_biased_input", default=True) else 0
    table = 2 * read.count("position_buckets", default=256) * a.hidden
    own = 0 if read.flag("share_att_key", default=False) else 2 * a.hidden * a.hidden
    a = dataclasses.replace(a, per_layer_parameters=a.per_layer_parameters + own)
    return _grown(a, table - spare - a.hidden * (a.hidden + 1))


def _t5(read: Config, name: str) -> Architecture:
    """T5: no biases, one RMS norm per sub-layer, one relative-position table per stack."""
    hidden, heads = read.count("d_model", default=512), read.count("num_heads", default=8)
    encoder_layers = read.layers("num_layers", default=6)
    buckets = read.count("relative_attention_num_buckets", default=32)
    return Architecture(
        name=name,
        family=Family.ENCODER_DECODER,
        layers=read.layers("num_decoder_layers", default=encoder_layers),
        hidden=hidden,
        ffn_hidden=read.count("d_ff", default=2048),
        heads=heads,
        kv_heads=heads,
        head_dim=read.count("d_kv", default=64),
        vocab=read.count("vocab_size", default=32_128),
        gated_mlp=read.text("feed_forward_proj", default="relu").startswith("gated"),
        tied_embeddings=read.flag("tie_word_embeddings", default=True),
        max_sequence=read.count("n_positions", default=512),
        encoder_layers=encoder_layers,
        encoder_tokens=read.count("n_positions", default=512),
        encoder_per_layer_parameters=2 * hidden,
        per_layer_parameters=3 * hidden,
        extra_parameters=2 * hidden + 2 * buckets * heads,
        source=_source(read),
    )


def _encoder_decoder(read: Config, name: str, *, tokens: int, small: int, key_bias: bool) -> Architecture:
    """Whisper and BART: biased projections (Whisper's keys have none), norms of 2 * hidden, tied head."""
    hidden = read.count("d_model")
    heads, encoder_heads = read.count("decoder_attention_heads"), read.count("encoder_attention_heads")
    ffn, encoder_ffn = read.count("decoder_ffn_dim"), read.count("encoder_ffn_dim")
    projections = (4 if key_bias else 3) * hidden
    return Architecture(
        name=name,
        family=Family.ENCODER_DECODER,
        layers=read.layers("decoder_layers"),
        hidden=hidden,
        ffn_hidden=ffn,
        heads=heads,
        kv_heads=heads,
        head_dim=read.quotient("decoder_attention_heads", hidden, heads),
        vocab=read.count("vocab_size"),
        gated_mlp=False,
        tied_embeddings=True,
        max_sequence=read.count("max_target_positions", "max_position_embeddings"),
        encoder_layers=read.layers("encoder_layers"),
        encoder_tokens=tokens,
        encoder_ffn_hidden=encoder_ffn,
        encoder_heads=encoder_heads if encoder_heads != heads else 0,
        encoder_per_layer_parameters=4 * hidden + projections + encoder_ffn + hidden,
        per_layer_parameters=6 * hidden + 2 * projections + ffn + hidden,
        extra_parameters=small,
        source=_source(read),
    )


def _whisper(read: Config, name: str) -> Architecture:
    """Whisper: two convolutions of width 3 over mel bins, positions of both stacks, two final norms."""
    hidden, mels = read.count("d_model"), read.count("num_mel_bins", default=80)
    tokens = read.count("max_source_positions", default=1500)
    stem = 3 * mels * hidden + 3 * hidden * hidden + 2 * hidden
    positions = tokens + read.count("max_target_positions", default=448)
    return _encoder_decoder(
        read, name, tokens=tokens, small=stem + positions * hidden + 4 * hidden, key_bias=False
    )


def _bart(read: Config, name: str) -> Architecture:
    """BART: learned positions (two spare) and an embedding norm in both stacks; mBART adds final norms."""
    hidden, tokens = read.count("d_model"), read.count("max_position_embeddings", default=1024)
    final = 4 * hidden if read.text("model_type") == "mbart" else 0
    small = 2 * (tokens + 2) * hidden + 4 * hidden + final
    return _encoder_decoder(read, name, tokens=tokens, small=small, key_bias=True)


def _vision(read: Config, name: str) -> Architecture:
    """An image tower without head and outer norms: patches, a class token, positions, layers."""
    hidden, heads = read.count("hidden_size", default=768), read.count("num_attention_heads", default=12)
    ffn = read.count("intermediate_size", default=3072)
    patch = read.count("patch_size", default=16, most=_MOST_PIXELS)
    side = read.count("image_size", default=224, most=_MOST_PIXELS) // patch
    tokens = side * side + 1
    pixels = read.count("num_channels", default=3) * patch * patch
    return Architecture(
        name=name,
        family=Family.VISION,
        layers=read.layers("num_hidden_layers", default=12),
        hidden=hidden,
        ffn_hidden=ffn,
        heads=heads,
        kv_heads=heads,
        head_dim=read.quotient("num_attention_heads", hidden, heads),
        vocab=0,
        gated_mlp=False,
        max_sequence=tokens,
        fixed_tokens=tokens,
        per_layer_parameters=_biases_and_norms(hidden, ffn),
        extra_parameters=pixels * hidden + hidden + tokens * hidden,
        source=_source(read),
    )


def _vit(read: Config, name: str) -> Architecture:
    """ViT: a bias on the patches, a final norm, a classifier over the config's labels."""
    tower = _vision(read, name)
    labels = read.size("id2label", default=0)
    return _grown(tower, 3 * tower.hidden + labels * (tower.hidden + 1))


def _clip_vision(read: Config, name: str) -> Architecture:
    """CLIP's image tower: a norm before the layers and one after."""
    tower = _vision(read, name)
    return _grown(tower, 4 * tower.hidden)


def _siglip(read: Config, name: str) -> Architecture:
    """SigLIP: towers without class token; the image's ends in attention pooling, one more layer."""
    vision, text = read.section("vision_config"), read.section("text_config")
    image = _vision(vision, name)
    hidden, ffn = text.count("hidden_size", default=768), text.count("intermediate_size", default=3072)
    tokens = text.count("max_position_embeddings", default=64)
    outside = (text.count("vocab_size", default=32_000) + tokens + 2) * hidden + hidden * hidden
    pool = (
        4 * image.hidden**2
        + 2 * image.hidden * image.ffn_hidden
        + _biases_and_norms(image.hidden, image.ffn_hidden)
    )
    return _grown(
        image,
        outside + pool + 2 * image.hidden,
        encoder_layers=text.layers("num_hidden_layers", default=12),
        encoder_tokens=tokens,
        encoder_hidden=hidden,
        encoder_ffn_hidden=ffn,
        encoder_heads=max(1, round(hidden / image.head_dim)),
        encoder_per_layer_parameters=_biases_and_norms(hidden, ffn),
    )


def _clip(read: Config, name: str) -> Architecture:
    """CLIP: the image tower in the plain fields, the text tower in `encoder_*`, and both projections."""
    image = _clip_vision(read.section("vision_config"), name)
    text = read.section("text_config")
    hidden, heads = text.count("hidden_size", default=512), text.count("num_attention_heads", default=8)
    ffn = text.count("intermediate_size", default=2048)
    tokens = text.count("max_position_embeddings", default=77)
    shared = read.count("projection_dim", default=512)
    text.quotient("num_attention_heads", hidden, heads)
    outside = (text.count("vocab_size", default=49_408) + tokens + 2) * hidden
    return _grown(
        image,
        outside + shared * (image.hidden + hidden) + 1,
        encoder_layers=text.layers("num_hidden_layers", default=12),
        encoder_tokens=tokens,
        encoder_hidden=hidden,
        encoder_ffn_hidden=ffn,
        # the towers share one head width in the formulas: the text's heads are counted in image heads' widths
        encoder_heads=max(1, round(hidden / image.head_dim)),
        encoder_per_layer_parameters=_biases_and_norms(hidden, ffn),
    )


def _grown(tower: Architecture, extra: int, **changes: int) -> Architecture:
    return dataclasses.replace(tower, extra_parameters=tower.extra_parameters + extra, **changes)  # type: ignore[arg-type]


def _source(read: Config) -> str:
    return f"Hugging Face config ({read.text('model_type')})"


TOWERS: Mapping[str, Callable[[Config, str], Architecture]] = {
    "bart": _bart,
    "bert": _bert,
    "camembert": _bert,
    "clip": _clip,
    "clip_vision_model": _clip_vision,
    "deberta": _deberta,
    "deberta-v2": _deberta,
    "deit": _vit,
    "dinov2": _vit,
    "distilbert": _distilbert,
    "electra": _bert,
    "esm": _bert,
    "m2m_100": _bart,
    "mbart": _bart,
    "modernbert": _modernbert,
    "mpnet": _bert,
    "mt5": _t5,
    "roberta": _bert,
    "siglip": _siglip,
    "t5": _t5,
    "umt5": _t5,
    "vit": _vit,
    "whisper": _whisper,
    "xlm-roberta": _bert,
    "xlm-roberta-xl": _bert,
}
"""Model type -> reader of its config."""
