"""Bytes saved for backward by each kind of layer, per micro-batch, on one GPU.

Legend: T tokens of a micro-batch on this rank (b s / c), t tensor-parallel ranks, h hidden, a heads, q
and k widths of queries and of keys (heads x head_dim), f feed-forward width, K experts of a token, V
vocabulary. bf16 is 2 bytes.

In 8-bit runs some frameworks keep a matmul's input in 1 byte. Some also keep the activation's input and the
tokens sent to experts in 1 byte, and the attention's output in 12 bits (DeepSeek-V3, arXiv:2412.19437,
section 3.3.3).

A linear mixer keeps what its architecture says (catalog/hybrids.py). A fused layer keeps: the input and
the output of both norms (8h), queries, keys, values and the attention's output (4q + 4k), its log-sum-exp
(4 bytes per head), the MLP's first output (4f gated, 2f plain) and the activation's (2f). Korthikanti et
al. 2022 (arXiv 2205.05198) has the same list for GPT with dropout.
"""

import numpy as np

from rightsizer_engine.domain.architecture import AttentionKind, encoder_widths, mlp_share, tower_layers
from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.framework import KernelStyle, SelectiveRecompute
from rightsizer_engine.domain.linear import attention_share, linear_share
from rightsizer_engine.domain.workload import AttentionKernel, LossKernel, Precision, Recompute
from rightsizer_engine.estimate.memory.states import adapters_only
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.work import adapts, attention_kernel
from rightsizer_engine.values import immutable

_BLOCKS_KEPT = 0.25
"""Share of blocks that keep their activations under selective recomputation of whole blocks; a guess."""


@immutable
class SavedActivations:
    """Bytes of one micro-batch: kept by a dense and an MoE layer, at their boundary, without recompute."""

    dense: Array
    moe: Array
    boundary: Array
    dense_full: Array
    moe_full: Array
    dense_gradients: Array
    moe_gradients: Array


@immutable
class _Widths:
    """Bytes per token.

    `replicated` parts live on every tensor rank unless sequence-parallel, `split` ones do not. Where a
    framework recomputes modules of MoE models, `outputs` (of both norms), `latent_ups` (queries, keys and
    values of latent attention) and `activated` (what experts' activations give) come back.
    """

    replicated: Array
    attention: Array
    dense: Array
    moe: Array
    routed: Array
    outputs: Array
    latent_ups: Array
    activated: Array


def _tokens(cases: Cases) -> Array:
    """Tokens of a micro-batch on one rank."""
    sequence = np.where(
        cases.architecture.fixed_tokens > 0, cases.architecture.fixed_tokens, cases.workload.sequence_tokens
    )
    return np.asarray(sequence * cases.layout.micro_batch / cases.layout.cp, dtype=float)


def saved_activations(cases: Cases, p: Parameters) -> SavedActivations:
    """Bytes that layers keep for backward, with the case's recomputation and without any."""
    layout, profile = cases.layout, cases.framework
    t = np.asarray(layout.tp, dtype=float)
    sequence = np.where(layout.sequence_parallel, t, 1.0)
    width = _widths(cases, p)
    hidden = np.asarray(cases.architecture.hidden, dtype=float)
    gather_rows = np.where(profile.saves_gathered_inputs & (sequence > 1), 4.0 * hidden, 0.0)
    replicated = np.maximum(width.replicated - gather_rows, 0.0) / sequence + gather_rows
    count, scores = _tokens(cases), _score_bytes(cases)
    core = replicated + width.attention / t
    experts = width.routed * (layout.expert_tp / t) + width.moe / t
    dense_full = count * (core + width.dense / t) + scores
    moe_full = count * (core + experts) + scores
    boundary = 2.0 * hidden * count / sequence
    full, selective = layout.recompute == Recompute.FULL, layout.recompute == Recompute.SELECTIVE
    ops = selective & (profile.selective == SelectiveRecompute.OPS)
    blocks = selective & (profile.selective == SelectiveRecompute.BLOCKS)
    named = profile.selective == SelectiveRecompute.MODULES
    of_experts = profile.recomputes_expert_modules & (cases.architecture.experts > 0)
    modules = np.where(selective & (named | of_experts), 1.0, 0.0)
    kept = count * _kept_by_ops(cases) * p.selective_ops
    dense, moe = dense_full - scores * selective, moe_full - scores * selective
    again = modules * count * (width.outputs / sequence + width.latent_ups / t)
    inside = 2.0 * cases.architecture.ffn_hidden * named
    dense = dense - again - modules * count * inside / t
    moe = moe - again - modules * count * width.activated / t
    dense, moe = (np.where(ops, np.minimum(kept, whole), whole) for whole in (dense, moe))
    dense, moe = (np.where(blocks, _BLOCKS_KEPT * x + (1 - _BLOCKS_KEPT) * boundary, x) for x in (dense, moe))
    return SavedActivations(
        dense=np.where(full, boundary, dense),
        moe=np.where(full, boundary, np.maximum(moe, boundary)),
        boundary=boundary,
        dense_full=dense_full,
        moe_full=moe_full,
        dense_gradients=count * _mlp_gradients(cases, cases.architecture.ffn_hidden / t, sequence),
        moe_gradients=count * _moe_gradients(cases, p, sequence),
    )


def _mlp_gradients(cases: Cases, width: Array, sequence: Array) -> Array:
    """Bytes per token of the gradients alive in the backward of an MLP of that width.

    Those of the layer's output, of the MLP's input and of the residual (6h); of the activation's output (2f)
    and, with separate kernels, of its inputs (4f gated, 2f plain). A fused kernel (Liger-Kernel's SwiGLU,
    Megatron's) writes the latter over what it saved.
    """
    fused = _kernels(cases) == KernelStyle.FUSED
    per_f = np.where(fused, 2.0, np.where(cases.architecture.gated_mlp, 6.0, 4.0))
    return np.asarray(per_f * width + 6.0 * cases.architecture.hidden / sequence)


def _moe_gradients(cases: Cases, p: Parameters, sequence: Array) -> Array:
    """The gradients of all experts that a token visits, and those of their inputs and outputs."""
    a, layout = cases.architecture, cases.layout
    visits = a.top_k * p.expert_imbalance
    width = (visits + a.shared_experts) * a.expert_ffn_hidden / layout.tp
    routed = 4.0 * a.hidden * visits * layout.expert_tp / layout.tp
    return np.asarray(_mlp_gradients(cases, width, sequence) + routed)


def tower_bytes(cases: Cases) -> Array:
    """Bytes that a second tower keeps of one micro-batch, by the module's list for a fused layer."""
    a, layout = cases.architecture, cases.layout
    hidden, ffn, heads = encoder_widths(a)
    split = 16.0 * heads * a.head_dim + 4.0 * heads + np.where(a.gated_mlp, 6.0, 4.0) * ffn
    kept = np.where(layout.recompute == Recompute.FULL, 2.0 * hidden, 8.0 * hidden + split / layout.tp)
    return np.asarray(tower_layers(a) * a.encoder_tokens * layout.micro_batch / layout.cp * kept)


def _kernels(cases: Cases) -> Array:
    """The kernel style in use: torch.compile replaces a profile's eager kernels."""
    replaced = (cases.workload.compile == 1.0) & (cases.framework.kernels == KernelStyle.EAGER)
    return np.where(replaced, KernelStyle.COMPILED, cases.framework.kernels)


def _widths(cases: Cases, p: Parameters) -> _Widths:
    """Bytes per token of one layer, by how ranks divide them."""
    a = cases.architecture
    kernels = _kernels(cases)
    eager, compiled = kernels == KernelStyle.EAGER, kernels == KernelStyle.COMPILED
    hidden = np.asarray(a.hidden, dtype=float)
    gated = np.asarray(a.gated_mlp, dtype=bool)
    eight = _saves_in_fp8(cases)
    compact = eight * cases.framework.fp8_saved_activations
    latent, attention, output = _attention_widths(cases, eager)
    kept = (1.0 - 0.25 * compact) * output
    attention = attention - output + kept
    norms = np.where(eager & gated, 16.0, 8.0) - 2.0 * eight + np.where(_dropout(cases), 2.0, 0.0)
    per_f = np.where(gated, np.where(eager | compiled, 8.0, 6.0), 4.0) - eight
    per_f = per_f - 2.0 * np.maximum(compact, eight * gated * cases.framework.fp8_saved_gates)
    frozen = adapters_only(cases.workload)
    cast = np.where(cases.framework.casts_adapter_inputs, 4.0, 2.0)
    norms = np.where(frozen, norms / 2.0 + cast, norms)
    per_f = np.where(frozen, per_f - 2.0 + np.where(adapts(cases.workload, "all"), cast, 0.0), per_f)
    factor = np.where(eager, p.eager_activations, 1.0)
    routed = a.top_k * p.expert_imbalance * factor
    latent_ups = np.where(a.attention == AttentionKind.LATENT, attention - kept - 4.0 * a.heads, 0.0)
    own = attention_share(a)
    return _Widths(
        replicated=(norms * hidden + own * latent) * factor,
        attention=own * attention * factor + 2.0 * linear_share(a) * a.linear_saved,
        dense=per_f * mlp_share(a) * a.ffn_hidden * factor,
        moe=(routed + a.shared_experts * factor) * per_f * a.expert_ffn_hidden + 8.0 * a.experts * factor,
        routed=(2.0 - compact) * hidden * routed,
        outputs=(4.0 - 2.0 * eight) * hidden,
        latent_ups=own * latent_ups,
        activated=(2.0 - eight) * a.expert_ffn_hidden * (routed + a.shared_experts),
    )


def _attention_widths(cases: Cases, eager: Array) -> tuple[Array, Array, Array]:
    """Bytes per token of attention: (latent vectors, per-head tensors, the output's part of these)."""
    a = cases.architecture
    heads = np.asarray(a.heads, dtype=float)
    query, key = heads * a.head_dim, a.kv_heads * a.head_dim * 1.0
    by_torch = np.isin(attention_kernel(cases), (AttentionKernel.SDPA, AttentionKernel.EAGER))
    repeated = eager & ~cases.framework.saves_gathered_inputs & by_torch
    key = np.where(repeated, query, key)
    grouped = 4.0 * query + 4.0 * key
    wide = heads * (a.qk_nope_head_dim + a.qk_rope_head_dim)
    values = heads * a.v_head_dim
    mla = 4.0 * wide + 4.0 * values
    latents = 4.0 * a.q_lora_rank + 4.0 * a.kv_lora_rank + 2.0 * a.qk_rope_head_dim
    is_mla = a.attention == AttentionKind.LATENT
    output = 2.0 * np.where(is_mla, values, query)
    return np.where(is_mla, latents, 0.0), np.where(is_mla, mla, grouped) + 4.0 * heads, output


def _dropout(cases: Cases) -> Array:
    """True with dropout: a matter of the GPT generation, so of plain-MLP models on Megatron-like stacks."""
    plain = ~np.asarray(cases.architecture.gated_mlp, dtype=bool)
    return np.asarray(cases.framework.dropout | (plain & cases.framework.dropout_with_plain_mlp))


def _score_bytes(cases: Cases) -> Array:
    """Materialised attention scores of one micro-batch; 0 for flash and SDPA."""
    a, layout = cases.architecture, cases.layout
    per_score = np.where(
        _dropout(cases), np.maximum(cases.framework.score_bytes, 5.0), cases.framework.score_bytes
    )
    scores = attention_share(a) * a.heads * _tokens(cases) * cases.workload.sequence_tokens / layout.tp
    return np.where(attention_kernel(cases) == AttentionKernel.EAGER, per_score * scores, 0.0)


def _saves_in_fp8(cases: Cases) -> Array:
    """1.0 where the matmuls' inputs are kept in fp8 instead of 16 bits."""
    precision = cases.workload.precision
    eight = (precision == Precision.FP8) | (precision == Precision.NVFP4)
    return np.asarray(eight & cases.framework.fp8_saved_inputs, dtype=float)


def _kept_by_ops(cases: Cases) -> Array:
    """Bytes per token that a per-op policy keeps: every second matmul output, attention's output, the input.

    Of q, k, v, o, gate, up, down it keeps q, v, gate, down (torchtitan's policy counts matmuls).
    """
    a, t = cases.architecture, cases.layout.tp
    sequence = np.where(cases.layout.sequence_parallel, t, 1.0)
    query, key = a.heads * a.head_dim, a.kv_heads * a.head_dim
    inside = (
        4.0 * query
        + 2.0 * key
        + 4.0 * a.heads
        + 2.0 * np.where(a.experts > 0, a.top_k * a.expert_ffn_hidden, a.ffn_hidden)
    )
    return np.asarray(inside / t + 4.0 * a.hidden / sequence)


def loss_bytes(cases: Cases, p: Parameters, kept: SavedActivations) -> Array:
    """Logits, their copies in the cross-entropy, and the last norm, for one micro-batch on the last stage.

    Each layer of multi-token prediction has its own loss and keeps its activations until backward leaves it
    (DeepSeek-V3, arXiv:2412.19437, section 2.2). Deferred gradients of logits and the head's inputs for them
    stay until the end of the pipeline (Megatron's defer_embedding_wgrad_compute).
    """
    profile, a, layout = cases.framework, cases.architecture, cases.layout
    split = np.where(profile.vocabulary_parallel_loss | profile.can_tensor_parallel, layout.tp, 1.0)
    logits = a.vocab / split
    sequence = np.where(layout.sequence_parallel, layout.tp, 1.0)
    norm = (4.0 / sequence + np.where(sequence > 1, 2.0, 0.0)) * a.hidden
    waiting = profile.deferred_head_gradients * 2.0 * (logits + a.hidden)
    per_loss = _bytes_per_logit(cases, p) * logits + norm
    ahead = np.where(a.experts > 0, kept.moe, kept.dense)
    return np.asarray(_tokens(cases) * (per_loss * (1.0 + a.mtp_layers) + waiting) + a.mtp_layers * ahead)


def _bytes_per_logit(cases: Cases, p: Parameters) -> Array:
    """Bytes of a logit at the peak of the loss.

    Fused with the head (Liger-Kernel's linear cross-entropy) no logit outlives its chunk, and a chunk holds
    as many logits as the micro-batch has hidden elements: its bytes follow the hidden width.
    """
    profile, stated = cases.framework, cases.workload.loss
    kernel = np.where(stated == LossKernel.AUTO, profile.loss, stated)
    reference = np.asarray(cases.workload.reference_model, dtype=bool)
    whole_logits = reference & (stated == LossKernel.AUTO)  # cross-entropy kernels do not compute DPO's loss
    kernel = np.where(whole_logits, str(LossKernel.EAGER), kernel)
    compiled = (cases.workload.compile == 1.0) & (kernel == LossKernel.EAGER) & (stated == LossKernel.AUTO)
    kernel = np.where(compiled & profile.compiles_loss, str(LossKernel.COMPILED), kernel)
    parallel = np.asarray(profile.vocabulary_parallel_loss, dtype=bool)
    per_logit = np.where(parallel, p.logit_bytes_parallel, p.logit_bytes_eager)
    per_logit = np.where(~parallel & (kernel == LossKernel.COMPILED), p.logit_bytes_compiled, per_logit)
    half = (cases.workload.precision == Precision.FP16) & adapters_only(cases.workload)
    per_logit = np.where(~parallel & half, p.logit_bytes_half, per_logit)
    jit = parallel & (stated == LossKernel.COMPILED)
    per_logit = np.where(jit, p.logit_bytes_parallel_jit, per_logit)
    whole = p.fused_loss_bytes * cases.architecture.hidden / np.maximum(cases.architecture.vocab, 1)
    fused = np.where(parallel, p.logit_bytes_parallel_fused, whole)
    per_logit = per_logit + np.where(reference, 2.0, 0.0)  # the reference model's, in 16 bits
    per_logit = np.where(kernel == LossKernel.FUSED, fused, per_logit)
    return np.where(kernel == LossKernel.CHUNKED, p.logit_bytes_chunked, per_logit)


def adapter_parameters(cases: Cases) -> tuple[Array, Array]:
    """Parameters of the adapters of (a dense, an MoE) layer on one GPU, before ZeRO.

    Each adapted matrix has rank x (inputs + outputs), each expert its own.
    """
    a, workload = cases.architecture, cases.workload
    query, key, hidden = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.hidden
    matrices = np.where(a.gated_mlp, 3.0, 2.0)
    attention = attention_share(a) * ((hidden + query) * 2.0 + (hidden + key) * 2.0)
    attention = attention + linear_share(a) * (2.0 * hidden + a.linear_in + a.linear_inner)
    everywhere = adapts(workload, "all")
    shared = a.shared_experts * (hidden + a.expert_ffn_hidden) * everywhere
    local = a.experts / np.maximum(cases.layout.ep * cases.layout.expert_tp, 1)
    experts = local * (hidden + a.expert_ffn_hidden) * adapts(workload, "experts")
    each = workload.lora_rank * workload.lora_adapters * np.where(adapters_only(workload), 1.0, 0.0)
    dense = attention + mlp_share(a) * matrices * (hidden + a.ffn_hidden) * everywhere
    return each * dense, each * (attention + matrices * (shared + experts))


def trains_embeddings(cases: Cases) -> Array:
    """True if embedding and head train in full beside the adapters."""
    return np.asarray(adapters_only(cases.workload) & adapts(cases.workload, "embeddings"))
