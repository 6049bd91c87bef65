"""Token mixers whose state does not grow with the sequence: state spaces, the delta rule, linear attention.

Legend: h hidden, H heads, d_k and d_v widths of a head's keys (a state space: its state) and values, G
groups that share keys, C tokens of a chunk, w taps of a convolution.

A mixer projects a token to `linear_in` elements, scans, and projects `linear_inner` elements back. Training
scans in chunks: inside a chunk as attention does, between chunks through a state of H d_k d_v elements. The
forward FLOPs of a token, as matmuls without their causal half (a kernel computes whole tiles):

    state space (Mamba-2, arXiv:2405.21060, section 6):        2 (C G d_k + C H d_v + 2 H d_k d_v)
    linear attention (Lightning, arXiv:2401.04658, section 3): 2 (C H d_k + C H d_v + 2 H d_k d_v)
    delta rule (arXiv:2406.06484; 2412.06464):      2 H (3 C d_k + 2 C d_v + 3 d_k d_v + C^2 / 3)
    selective scan (Mamba-1, arXiv:2312.00752), element-wise:  9 H d_k d_v
    short convolution:                                         2 w width

The readers of configs (catalog/hybrids.py) apply them; an architecture holds the sums for one layer. `a` is
an architecture or columns of many.
"""

from typing import Any

import numpy as np

from rightsizer_engine.domain.columns import Floats, cached_by_columns, floats


@cached_by_columns
def attention_layers(a: Any) -> Floats:
    """Layers with attention."""
    return np.asarray(floats(a.layers) - floats(a.attention_free_layers))


@cached_by_columns
def attention_share(a: Any) -> Floats:
    """The share of layers with attention."""
    return np.asarray(attention_layers(a) / np.maximum(floats(a.layers), 1.0))


@cached_by_columns
def linear_share(a: Any) -> Floats:
    """The share of layers with a linear mixer."""
    return np.asarray(floats(a.linear_layers) / np.maximum(floats(a.layers), 1.0))


@cached_by_columns
def linear_parameters(a: Any) -> Floats:
    """One linear mixer's projections."""
    return np.asarray(floats(a.hidden) * (floats(a.linear_in) + floats(a.linear_inner)))


@cached_by_columns
def linear_flop(a: Any) -> Floats:
    """Forward FLOPs of a token in one linear mixer, without its projections."""
    return floats(a.linear_scan_flop)


def state_space_flop(*, heads: int, groups: int, state: int, head: int, chunk: int) -> int:
    """Mamba-2: scores for each group, values for each head, and the state in and out."""
    return 2 * (chunk * groups * state + chunk * heads * head + 2 * heads * state * head)


def lightning_flop(*, heads: int, keys: int, values: int, chunk: int) -> int:
    """Linear attention with a decay for each head."""
    return 2 * heads * (chunk * (keys + values) + 2 * keys * values)


def delta_rule_flop(*, heads: int, keys: int, values: int, chunk: int) -> int:
    """The (gated) delta rule in its WY form: three products of keys, a triangular inverse, two of values."""
    return 2 * heads * (3 * chunk * keys + 2 * chunk * values + 3 * keys * values + chunk * chunk // 3)


def selective_scan_flop(*, inner: int, state: int) -> int:
    """Mamba-1: decay, input and output of each element of the state."""
    return 9 * inner * state
