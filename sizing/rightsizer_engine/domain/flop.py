"""Training FLOPs of one token, forward and backward, from an architecture's dimensions."""

from typing import Any

import numpy as np

from rightsizer_engine.domain.architecture import (
    Architecture,
    Family,
    attention_width,
    encoder_parameters,
    encoder_widths,
    parameters_matmul_active,
)
from rightsizer_engine.domain.columns import Columns, Floats, cached_by_columns, choose, equals, floats
from rightsizer_engine.domain.linear import attention_layers, linear_flop


def flop_per_token(a: Architecture | Columns, sequence_tokens: Any, *, causal: bool = True) -> Floats:
    """Training FLOPs of one token of the (decoder's) sequence, forward and backward, nothing recomputed.

    6 FLOPs per weight, and 6 * (qk + v) width per attended position: 12 * layers * heads * head_dim * context
    (Kaplan et al., arXiv:2001.08361, 2.1; PaLM, arXiv:2204.02311, appendix B). `causal` counts only the
    positions that the mask leaves: s / 2, or w - w^2 / 2s under a window of w. An encoder's cost is spread
    over the decoder's tokens.
    """
    tokens = floats(sequence_tokens)
    full_layers = attention_layers(a) - floats(a.sliding_layers)
    decoder = equals(a.family, Family.DECODER) | equals(a.family, Family.ENCODER_DECODER)
    window = choose(floats(a.sliding_window) > 0, np.minimum(floats(a.sliding_window), tokens), tokens)
    halved = causal & decoder
    context = choose(halved, tokens / 2, tokens)
    windowed = choose(halved, window - window**2 / (2 * np.maximum(tokens, 1.0)), window)
    width = attention_width(a)
    attended = width * (full_layers * context + floats(a.sliding_layers) * windowed)
    crossing = choose(
        equals(a.family, Family.ENCODER_DECODER), floats(a.layers) * floats(a.encoder_tokens), 0.0
    )
    indexed = floats(a.indexer_width) * attention_layers(a) * context
    own = 6 * (parameters_matmul_active(a) - encoder_parameters(a)) + 12 * (attended + width * crossing)
    own = own + 6 * indexed + 3 * floats(a.linear_layers) * linear_flop(a)
    return own + _encoder_flop(a) / np.maximum(tokens, 1.0)


@cached_by_columns
def _encoder_flop(a: Architecture | Columns) -> Floats:
    """Training FLOPs of one sequence in the encoder (cross-attention's are the decoder's)."""
    tokens = floats(a.encoder_tokens)
    _, _, heads = encoder_widths(a)
    attended = floats(a.encoder_layers) * heads * floats(a.head_dim) * tokens
    return tokens * (6 * encoder_parameters(a) + 12 * attended)
