"""Seconds of attention's core: which kernel runs on which GPU, and at what share of the peak.

Kernels come in generations of the hardware. FlashAttention-2 is written for Ampere's tensor instructions;
on Hopper and Blackwell it runs but reaches a third and a sixth of the peak, where the kernels of that
generation reach over half: FlashAttention-3 (Hopper), FlashAttention-4 (both) and cuDNN, which
TransformerEngine uses. These three are equal within 15 % (631 and 632 TFLOP/s of cuDNN and FlashAttention-3
on an H100, pytorch/pytorch#142132; 1,115 and 1,176 of cuDNN and FlashAttention-4 on a B200,
Dao-AILab/flash-attention#2605). Elsewhere each of them is FlashAttention-2.

A flash kernel takes its FLOPs (2.5 times as many backward) at u of the 16-bit peak, plus a chain over the
keys that one block reads in sequence. A linear mixer's scan takes its FLOPs at one small share of the peak
on every GPU: its kernels are many, short, and wait for memory. Eager attention computes the whole s x s and
moves the scores.
"""

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.linear import attention_share
from rightsizer_engine.domain.workload import AttentionKernel
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.step.kernels import GENERATIONS, GpuRates, smooth_maximum
from rightsizer_engine.estimate.work import BF16_BYTES, LayerWork, attention_kernel
from rightsizer_engine.values import immutable

_HOPPER, _BLACKWELL, _CDNA = (GENERATIONS.index(name) for name in ("hopper", "blackwell", "cdna"))
_TORCH_FLASH_2_YEAR = 2024.0  # torch 2.2 (January 2024); 2.0 and 2.1 have FlashAttention-1
_TORCH_CUDNN_YEAR = 2026.2  # torch 2.11 (March 2026) prefers cuDNN on sm90 and sm100 (pytorch/pytorch#162073)
_MERGED_BYTES = 40.0  # of an element of attention's result and part: see docs/engine.md
_SUMMED_BYTES = 58.0
_SCAN_SHARE = 0.06
"""Of the 16-bit peak that scans reach on large shapes, with the FLOPs of domain/linear.py.

Gated delta rule 4.5 % on GB200 (flash-linear-attention's README, 8,192 tokens x 96 heads; backward 2.7 times
as long) and 7.2 % on H800 (PaddlePaddle/flash-attention#133, where Kimi's has 4.4 %); Mamba-2 7.5 % on A100
(as fast as FlashAttention-2 at 2,700 tokens: 6 times as fast at 16,384, arXiv:2405.21060, figure 10).
"""


@immutable
class AttentionTimes:
    """Seconds on one GPU for one micro-batch through an average layer."""

    forward_s: Array
    backward_s: Array


def attention(cases: Cases, work: LayerWork, rates: GpuRates, parameters: Parameters) -> AttentionTimes:
    """Attention's core, forward and backward."""
    code, split = rates.generation, cases.layout.cp
    eager = attention_kernel(cases) == AttentionKernel.EAGER
    forward = rates.peak16_flop_per_s * _share(cases, work, rates, parameters)
    backward = forward * 2.5 / parameters.keyed("flash_backward", GENERATIONS)[code]
    keys = work.attention_tokens / split * attention_share(cases.architecture)
    scan = work.scan_flop / (rates.peak16_flop_per_s * _SCAN_SHARE)
    fast = flash_s(work.attention_flop, keys, forward, parameters)
    fast_back = flash_s(2.5 * work.attention_flop, keys, backward, parameters)
    slow = _eager_s(work, rates, parameters) if np.any(eager) else np.zeros(())
    ring = 1.0 + parameters.context_attention * (split - 1) / split
    merged, summed = _merged_s(cases, work, rates)
    return AttentionTimes(
        forward_s=np.asarray(np.where(eager, slow, fast) * ring + merged + scan),
        backward_s=np.asarray(np.where(eager, 2 * slow, fast_back) * ring + summed + 2.5 * scan),
    )


def flash_s(flop: Array, keys: Array, flop_per_s: Array, parameters: Parameters) -> Array:
    """Seconds of flash attention: its FLOPs at the plateau, and one block's chain over its keys.

    The chain remains when few heads leave multiprocessors idle. In the measured tables it is a constant per
    token, the same on A100 and B200.
    """
    return np.asarray(flop / flop_per_s + parameters.flash_chain_s_per_token * keys)


def _share(cases: Cases, work: LayerWork, rates: GpuRates, parameters: Parameters) -> Array:
    """The share of the 16-bit peak that the flash kernel in use reaches forward."""
    code = rates.generation
    old = parameters.keyed("flash_2", GENERATIONS)[code]
    own = np.select(
        [code == _HOPPER, code == _BLACKWELL, code == _CDNA],
        [parameters.flash_own_hopper, parameters.flash_own_blackwell, parameters.flash_own_cdna],
        old,
    )
    kernel = _on_this_gpu(cases, code)
    first = kernel == AttentionKernel.FLASH_1
    share = np.where(kernel == AttentionKernel.CUDNN, own, np.where(first, old * parameters.flash_1, old))
    stated = np.isin(cases.workload.attention, (AttentionKernel.AUTO, AttentionKernel.FLASH), invert=True)
    engine = (cases.framework.flash_kernel == AttentionKernel.CUDNN) & rates.low_precision
    either = (cases.framework.known == 0) & ~stated & ~engine  # only 8 bits mean TransformerEngine
    share = np.where(either, np.sqrt(share * old), share)
    narrow = np.where(work.qk_dim <= 64, parameters.flash_head_64, 1.0)
    return np.asarray(share * np.where(work.qk_dim > 160, parameters.flash_head_192, narrow))


def _on_this_gpu(cases: Cases, code: Array) -> Array:
    """FLASH_1, FLASH_2 or CUDNN, which stands for every kernel of the GPU's own generation."""
    kernel, year = attention_kernel(cases), cases.workload.library_year
    hopper, blackwell = code == _HOPPER, code == _BLACKWELL
    modern = ((year == 0) | (year >= _TORCH_CUDNN_YEAR)) & (hopper | blackwell)
    modern = modern | (blackwell & (cases.framework.prefers_cudnn_attention > 0))
    before = (year > 0) & (year < _TORCH_FLASH_2_YEAR)
    torch = np.select(
        [modern, before], [AttentionKernel.CUDNN, AttentionKernel.FLASH_1], AttentionKernel.FLASH_2
    )
    kernel = np.where(kernel == AttentionKernel.SDPA, torch, kernel)
    third = (kernel == AttentionKernel.FLASH_3) & hopper
    fourth = (kernel == AttentionKernel.FLASH_4) & (hopper | blackwell)
    return np.where(third | fourth, AttentionKernel.CUDNN, kernel)


def _eager_s(work: LayerWork, rates: GpuRates, parameters: Parameters) -> Array:
    """Forward seconds of attention that writes the scores of the whole s x s."""
    moved = BF16_BYTES * work.score_elements / rates.hbm_bytes_per_s
    product_s = work.attention_flop / (rates.matmul16_flop_per_s * parameters.score_matmul)
    products = product_s * (1.0 + rates.half_k16 / work.qk_dim), product_s * (1.0 + 32.0 / work.qk_dim)
    slow = sum((smooth_maximum(product, moved) for product in products), parameters.score_passes * moved)
    return np.asarray(slow * np.where(work.qk_dim % 8 == 0, 1.0, parameters.unaligned_head))


def _merged_s(cases: Cases, work: LayerWork, rates: GpuRates) -> tuple[Array, Array]:
    """Seconds to merge the partial results of a split context, and to sum their gradients."""
    parts = np.where(cases.framework.merges_context_parts, cases.layout.cp - 1.0, 0.0)
    elements = parts * work.score_elements / work.attention_tokens * work.qk_dim
    once = elements / rates.hbm_bytes_per_s
    return np.asarray(_MERGED_BYTES * once), np.asarray(_SUMMED_BYTES * once)
