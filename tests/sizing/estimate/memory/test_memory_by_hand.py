"""Bytes worked out by hand for one small network, exactly.

Legend: T tokens of a micro-batch, L layers, h hidden, f feed-forward width, a heads, q and k widths of
queries and keys, V vocabulary, N parameters.
A layer of NET: attention 2h(q + k) = 192, gated MLP 3hf = 384. N counts 4 layers, embedding and head.
"""

import dataclasses

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import SelectiveRecompute, framework
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import (
    AttentionKernel,
    Method,
    Optimizer,
    Precision,
    Recompute,
    Workload,
)
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.estimate.memory.activations import loss_bytes, saved_activations
from rightsizer_engine.estimate.memory.stage import in_flight
from rightsizer_engine.estimate.parameters import load_memory

NET = Architecture(
    name="net", layers=4, hidden=8, ffn_hidden=16, heads=2, kv_heads=1, head_dim=4, vocab=32
)  # fmt: skip
GPT = dataclasses.replace(NET, ffn_hidden=32, kv_heads=2, gated_mlp=False)
ENDS = 2 * 32 * 8
LAYER = 192 + 384
N, T = 4 * LAYER + ENDS, 16


def case(*, net=NET, profile="megatron-core", gpu="H100-SXM5-80GB", facts=None, **changes):
    names = {f.name for f in dataclasses.fields(Workload)} - {"recompute"}
    work = {"tokens": 1e9, "sequence_tokens": T, "global_batch_sequences": 64}
    work |= {k: v for k, v in changes.items() if k in names}
    split = {"micro_batches": 2} | {k: v for k, v in changes.items() if k not in names}
    return Case(
        architecture=net,
        workload=Workload(**work),
        cluster=lookup.cluster(gpu),
        framework=dataclasses.replace(framework(profile), **(facts or {})),
        layout=Layout(**split),
    )


def cases(**changes):
    return device_memory.with_float_counts(Cases.of(case(**changes)))


def states(**changes):
    found = device_memory.estimate(cases(**changes))
    return tuple(float(x) for x in (found.weights_bytes, found.gradients_bytes, found.optimizer_bytes))


def layers_bytes(**changes):
    """Activations of one micro-batch on the only stage."""
    return float(device_memory.estimate(cases(**changes)).activations_bytes)


@pytest.mark.parametrize(
    ("changes", "weight", "gradient", "optimizer"),
    [
        ({}, 2, 4, 12),  # bf16 weight, fp32 gradient; fp32 master and two fp32 moments
        ({"precision": Precision.FP16}, 2, 2, 8 + 8),
        ({"precision": Precision.FP8}, 2 + 1 + 1, 4, 12),  # an fp8 copy and its transpose
        ({"precision": Precision.FP8, "gpu": "B200-SXM-180GB"}, 2 + 1, 4, 12),  # no transpose needed
        ({"precision": Precision.FP32}, 4, 4, 8),  # the weight is its own master
        ({"optimizer": Optimizer.ADAMW_8BIT}, 2, 4, 4 + 1 + 1),
        ({"optimizer": Optimizer.ADAMW_8BIT, "precision": Precision.FP32}, 4, 4, 1 + 1),
        ({"optimizer": Optimizer.SGD}, 2, 4, 4 + 4),
        ({"optimizer": Optimizer.LION}, 2, 4, 4 + 4),
        ({"optimizer": Optimizer.MUON}, 2, 4, 4 + 4),
        ({"optimizer": Optimizer.ADAFACTOR}, 2, 4, 4),
        ({"profile": "torchtitan"}, 4, 4, 8),
        ({"offload": Offload.OPTIMIZER}, 2, 4, 0),
    ],
)
def test_states_of_full_training_are_bytes_times_parameters(changes, weight, gradient, optimizer):
    assert states(**changes) == (weight * N, gradient * N, optimizer * N)


@pytest.mark.parametrize(
    ("sharding", "weight", "gradient", "optimizer"),
    [
        (Sharding.NONE, 2, 2, 12),
        (Sharding.ZERO1, 2, 2, 12 / 8),
        (Sharding.ZERO2, 2, 2 / 8, 12 / 8),
        (Sharding.ZERO3, 2 / 8, 2 / 8, 12 / 8),
    ],
)
def test_each_zero_stage_divides_one_more_state_by_the_replicas(sharding, weight, gradient, optimizer):
    found = states(profile="deepspeed-zero", dp=4, cp=2, sharding=sharding)
    assert found == (weight * N, gradient * N, optimizer * N)


def test_a_shard_group_divides_by_its_own_size_and_never_by_more_than_the_replicas():
    groups = [states(profile="deepspeed-zero", dp=8, sharding=Sharding.HSDP, shard_group=g) for g in (4, 16)]
    assert groups == [(2 * N / d, 2 * N / d, 12 * N / d) for d in (4, 8)]


# Rank 1 on one layer: q, k, v, o take (8+8) + (8+4) + (8+4) + (8+8); gate, up, down take 3 (8 + 16)
ATTENTION_ADAPTERS, MLP_ADAPTERS = 56, 72


@pytest.mark.parametrize(
    ("targets", "low_rank", "copied"),
    [
        ("attention", 2 * 4 * ATTENTION_ADAPTERS, 0),
        ("all", 2 * 4 * (ATTENTION_ADAPTERS + MLP_ADAPTERS), 0),
        ("attention+embeddings", 2 * 4 * ATTENTION_ADAPTERS, ENDS),
        ("all+embeddings", 2 * 4 * (ATTENTION_ADAPTERS + MLP_ADAPTERS), ENDS),
    ],
)
def test_lora_keeps_fp32_factors_and_16_bit_copies_beside_a_frozen_base(targets, low_rank, copied):
    found = states(profile="peft", method=Method.LORA, lora_rank=2, lora_targets=targets)
    assert found == (
        2 * N + 4 * low_rank + 2 * copied,
        4 * low_rank + 2 * copied,
        8 * low_rank + 4 * copied,  # two moments, as wide as what they follow
    )


def test_lora_s_states_are_divided_by_zero_3_too():
    whole = states(profile="peft", method=Method.LORA, lora_rank=2)
    split = states(profile="peft", method=Method.LORA, lora_rank=2, dp=4, sharding=Sharding.ZERO3)
    assert split == tuple(x / 4 for x in whole)


def test_frozen_weights_of_an_fp8_run_take_a_byte():
    low_rank = 2 * 4 * ATTENTION_ADAPTERS
    found = states(profile="peft", method=Method.LORA, lora_rank=2, precision=Precision.FP8)
    assert found[0] == 4 * LAYER + 2 * ENDS + 4 * low_rank


def test_experts_are_divided_over_expert_ranks_and_their_own_replicas():
    """8 experts of 3hf' = 96 on 4 ranks: 2 each, with states divided over the 8/4 ranks that share them."""
    net = dataclasses.replace(NET, experts=8, top_k=2, expert_ffn_hidden=4, shared_experts=1)
    plain = 4 * (192 + 96 + 8 * 8) + ENDS  # attention, the shared expert, the router
    found = states(net=net, dp=8, ep=4, sharding=Sharding.ZERO1)
    experts = 4 * 2 * 96
    assert found == (2 * (plain + experts), 4 * (plain + experts), 12 * (plain / 8 + experts / 2))


# Kept of a token: norms 8h; queries and output 4q, keys and values 4k, log-sum-exp 4a; MLP 6f
REPLICATED, ATTENTION, MLP = 8 * 8, 4 * 8 + 4 * 4 + 4 * 2, 6 * 16


@pytest.mark.parametrize(
    ("layout", "bytes_per_token"),
    [
        ({}, REPLICATED + ATTENTION + MLP),
        ({"micro_batch": 3}, 3 * (REPLICATED + ATTENTION + MLP)),
        ({"cp": 2}, (REPLICATED + ATTENTION + MLP) / 2),
        ({"tp": 2}, REPLICATED + (ATTENTION + MLP) / 2),
        ({"tp": 2, "sequence_parallel": True}, (REPLICATED + ATTENTION + MLP) / 2),
        ({"recompute": Recompute.FULL}, 2 * 8),
        ({"recompute": Recompute.FULL, "tp": 2, "sequence_parallel": True}, 2 * 8 / 2),
    ],
)
def test_a_layer_keeps_its_list_for_backward(layout, bytes_per_token):
    assert layers_bytes(**layout) == 4 * T * bytes_per_token


def test_recomputing_one_of_four_layers_leaves_three_whole():
    found = layers_bytes(recompute=Recompute.FULL, recompute_layers=1)
    assert found == T * (2 * 8 + 3 * (REPLICATED + ATTENTION + MLP))


def test_offloading_three_quarters_leaves_one_of_four_layers():
    found = layers_bytes(offload=Offload.ACTIVATIONS, offload_percent=75)
    assert found == T * (REPLICATED + ATTENTION + MLP)


@pytest.mark.parametrize("tp", [1, 2])
def test_a_gpt_layer_keeps_korthikanti_s_sbh_34_and_5_as_h(tp):
    """arXiv:2205.05198, equation 2: sbh (10 + 24/t + 5as/(ht)), and a log-sum-exp of 4 bytes a head."""
    lse = 4 * 2 / tp
    found = layers_bytes(net=GPT, profile="megatron-lm-2022", micro_batch=2, tp=tp)
    assert found == 4 * 2 * T * (8 * (10 + 24 / tp + 5 * 2 * T / (8 * tp)) + lse)


def test_selective_recompute_leaves_all_but_korthikanti_s_attention_part():
    """Section 5: sbh 34/t without 5as/(ht), which is what selective recompute brings back."""
    lm = {"profile": "megatron-lm-2022", "facts": {"recomputes_expert_modules": False}}
    for net in (dataclasses.replace(GPT, experts=8, top_k=2, expert_ffn_hidden=4), GPT):
        selective = layers_bytes(net=net, recompute=Recompute.SELECTIVE, **lm)
        assert layers_bytes(net=net, **lm) - selective == 4 * 5 * 2 * T * T
    assert selective == 4 * T * (34 * 8 + 4 * 2)


def test_scores_without_dropout_are_a_softmax_in_16_bits():
    eager = layers_bytes(attention=AttentionKernel.EAGER, facts={"score_bytes": 2.0})
    assert eager - layers_bytes() == 4 * 2 * 2 * T * T


def test_recompute_by_operators_keeps_every_second_matmul():
    """Of q, k, v, o, gate, up, down: q, v, gate, down; the attention's output and log-sum-exp; the input."""
    kept = 2 * 8 + 2 * 4 + 2 * 16 + 2 * 8  # q, v, gate, down
    kept += 2 * 8 + 4 * 2 + 2 * 8  # attention's output, log-sum-exp, input
    found = layers_bytes(profile="torchtitan", recompute=Recompute.SELECTIVE)
    assert found == pytest.approx(4 * T * kept * load_memory().selective_ops, rel=1e-12)


@pytest.mark.parametrize("kept", [0, 1])
def test_fp8_keeps_inputs_of_matmuls_in_one_byte(kept):
    """Megatron keeps the two norms' outputs and the activation's in fp8: 2h and f bytes less a token."""
    found = layers_bytes(precision=Precision.FP8, facts={"fp8_saved_inputs": bool(kept)})
    assert found == 4 * T * (REPLICATED + ATTENTION + MLP - kept * (2 * 8 + 16))


def test_experts_keep_activations_of_the_tokens_routed_to_them():
    """A token: 2h and 6f' in each of top_k experts (times the imbalance), 6f' shared, 8 a router logit."""
    net = dataclasses.replace(NET, experts=8, top_k=2, expert_ffn_hidden=4, shared_experts=1)
    routed = 2 * load_memory().expert_imbalance
    token = REPLICATED + ATTENTION + routed * (2 * 8 + 6 * 4) + 6 * 4 + 8 * 8
    assert layers_bytes(net=net) == pytest.approx(4 * T * token, rel=1e-12)


def test_recompute_by_named_modules_drops_what_norms_and_the_activation_give():
    """A dense layer drops 2h for each norm's output and 2f for the activation's."""
    facts = {"selective": SelectiveRecompute.MODULES}
    found = layers_bytes(recompute=Recompute.SELECTIVE, facts=facts)
    assert found == 4 * T * (REPLICATED + ATTENTION + MLP - 4 * 8 - 2 * 16)


def test_recompute_by_blocks_keeps_a_quarter_of_them():
    facts = {"selective": SelectiveRecompute.BLOCKS, "recomputes_expert_modules": False}
    found = layers_bytes(recompute=Recompute.SELECTIVE, facts=facts)
    assert found == 4 * T * (0.25 * (REPLICATED + ATTENTION + MLP) + 0.75 * 2 * 8)


# Heads are 3 + 2 wide for queries and keys and 5 for values; 4 bytes of each, and of a log-sum-exp
LATENT = dataclasses.replace(
    NET, attention="mla", q_lora_rank=6, kv_lora_rank=4, qk_nope_head_dim=3, qk_rope_head_dim=2, v_head_dim=5
)  # fmt: skip
LOW_RANKS, HEADS = 4 * 6 + 4 * 4 + 2 * 2, 4 * 2 * (3 + 2) + 4 * 2 * 5 + 4 * 2


@pytest.mark.parametrize("tp", [1, 2])
def test_latent_attention_keeps_its_low_ranks_on_every_tensor_rank(tp):
    found = layers_bytes(net=LATENT, tp=tp)
    assert found == 4 * T * (REPLICATED + LOW_RANKS + (HEADS + MLP) / tp)


@pytest.mark.parametrize("tp", [1, 2])
def test_modules_of_sparse_models_bring_back_norms_latents_and_activations(tp):
    """2 x 2h of the norms; queries, keys and values; 2f' of each expert's activation."""
    net = dataclasses.replace(LATENT, experts=8, top_k=2, expert_ffn_hidden=4)
    whole = layers_bytes(net=net, tp=tp, recompute=Recompute.NONE)
    found = layers_bytes(net=net, tp=tp, recompute=Recompute.SELECTIVE)
    attention = HEADS - 2 * 2 * 5 - 4 * 2  # less the output and the log-sum-exp
    activated = 2 * 4 * 2 * load_memory().expert_imbalance
    assert whole - found == pytest.approx(4 * T * (4 * 8 + (attention + activated) / tp), rel=1e-12)


@pytest.mark.parametrize(
    ("targets", "cast", "bytes_per_token"),
    [
        ("attention", False, (4 + 2) * 8 + ATTENTION + 4 * 16),
        ("attention", True, (4 + 4) * 8 + ATTENTION + 4 * 16),
        ("all", False, (4 + 2) * 8 + ATTENTION + (4 + 2) * 16),
        ("all", True, (4 + 4) * 8 + ATTENTION + (4 + 4) * 16),
    ],
)
def test_frozen_layers_keep_inputs_of_adapters_only(targets, cast, bytes_per_token):
    """Half the norms and two thirds of the MLP; an adapter's input of 2 bytes, 4 where it is cast to fp32."""
    found = layers_bytes(method=Method.LORA, lora_targets=targets, facts={"casts_adapter_inputs": cast})
    assert found == 4 * T * bytes_per_token


def test_the_offloaded_share_is_a_matter_of_each_case():
    rows = [
        case(offload=Offload.ACTIVATIONS, offload_percent=75),
        case(offload=Offload.ACTIVATIONS),
        case(offload_percent=75),
    ]
    found = device_memory.estimate(device_memory.with_float_counts(Cases.stack(rows))).activations_bytes
    assert list(found) == [x * T * (REPLICATED + ATTENTION + MLP) for x in (1, 0, 4)]


def test_transformer_engine_keeps_a_gradient_of_each_matrix_shape():
    found = device_memory.estimate(cases()).workspaces_bytes - load_memory().workspace_bytes
    assert float(found) == 2 * LAYER
    sparse = dataclasses.replace(NET, experts=8, top_k=2, expert_ffn_hidden=4, shared_experts=1)
    found = device_memory.estimate(cases(net=sparse)).workspaces_bytes - load_memory().workspace_bytes
    assert float(found) == 2 * (192 + 96 + 64 + 96)  # attention, the shared expert, the router, one expert
    mixed = dataclasses.replace(sparse, dense_layers=1)
    found = device_memory.estimate(cases(net=mixed)).workspaces_bytes - load_memory().workspace_bytes
    assert float(found) == 2 * (192 + 384 + 96 + 64 + 96)


@pytest.mark.parametrize(
    ("sharding", "buckets"), [(Sharding.NONE, 0), (Sharding.ZERO1, 1), (Sharding.ZERO3, 1)]
)
def test_deepspeed_has_its_buckets_where_it_shards(sharding, buckets):
    found = device_memory.estimate(cases(profile="deepspeed-zero", dp=2, sharding=sharding))
    assert float(found.buckets_bytes) == pytest.approx(buckets * 2**33 * load_memory().bucket_scale)


@pytest.mark.parametrize(
    ("layers", "profile", "stage", "held"),
    [
        (5, "megatron-core", 3, 0),  # two on each of three stages are more than there are
        (5, "megatron-core", 0, 2),
        (6, "megatron-core", 0, 1),  # with embedding and head 8 on 4 stages
        (6, "megatron-core", 1, 2),
        (1, "torchtitan", 0, 0),
    ],
)
def test_a_stage_holds_its_share_of_the_layers(layers, profile, stage, held):
    some = cases(net=dataclasses.replace(NET, layers=layers), profile=profile, pp=4, micro_batches=1)
    found = device_memory.stage_memory(some, load_memory(), np.asarray(stage))
    assert float(found.activations_bytes) == held * float(_layer(profile))


def _layer(profile):
    return device_memory.estimate(cases(profile=profile, micro_batches=1)).activations_bytes / 4


def test_experts_split_over_tensor_ranks_too():
    net = dataclasses.replace(NET, experts=8, top_k=2, expert_ffn_hidden=4)
    found = states(net=net, tp=2, ep=4, expert_tp=2, dp=4)
    assert found[0] == 2 * (4 * (192 / 2 + 64 + 8 * 96 / 4 / 2) + ENDS / 2)


def test_a_shard_group_smaller_than_the_experts_ranks_divides_no_expert():
    net = dataclasses.replace(NET, experts=8, top_k=2, expert_ffn_hidden=4)
    found = states(net=net, dp=8, ep=8, sharding=Sharding.ZERO1, shard_group=4)
    assert found[2] == 12 * ((4 * (192 + 64) + ENDS) / 4 + 4 * 96)


def loss(**changes):
    some = cases(**changes)
    return float(loss_bytes(some, load_memory(), saved_activations(some, load_memory())))


@pytest.mark.parametrize(
    ("layout", "logits", "norm"),
    [({}, 32, 4 * 8), ({"tp": 2}, 16, 4 * 8), ({"tp": 2, "sequence_parallel": True}, 16, (4 / 2 + 2) * 8)],
    ids=["whole", "the vocabulary split", "the sequence split and gathered"],
)
def test_the_loss_keeps_logits_and_the_last_norm(layout, logits, norm):
    assert loss(**layout) == pytest.approx(
        T * (load_memory().logit_bytes_parallel * logits + norm), rel=1e-12
    )


@pytest.mark.parametrize(
    ("pipeline", "group", "stage", "micro_batches", "held"),
    [
        ((4, 1), 0, 0, 16, 4),  # 1F1B: p - i
        ((4, 1), 0, 3, 16, 1),
        ((4, 1), 0, 0, 2, 2),  # never more than there are
        ((4, 3), 0, 3, 16, 9 / 3),  # 2(p - i - 1) + (v - 1) p + 1 chunks of 1/v
        ((4, 3), 5, 3, 16, 11 / 3),
        ((4, 2), 0, 0, 16, (6 + 4 + 1) / 2),
        ((4, 2), 0, 0, 4, 8 / 2),
    ],
)
def test_micro_batches_in_flight_follow_the_schedule(pipeline, group, stage, micro_batches, held):
    some = cases(
        net=dataclasses.replace(NET, layers=24), pp=pipeline[0], vpp=pipeline[1], micro_batches=micro_batches,
        facts={"interleaved_group": group},
    )  # fmt: skip
    assert float(in_flight(some, np.asarray(stage))) == held


@pytest.mark.parametrize(
    ("stage", "held"), [(0, LAYER * 2 + ENDS / 2), (1, LAYER * 2 + ENDS / 2)], ids=["embedding", "head"]
)
def test_each_of_two_stages_holds_half_the_layers_and_one_end(stage, held):
    found = device_memory.stage_memory(cases(pp=2), load_memory(), np.asarray(stage))
    assert float(found.weights_bytes) == 2 * held


def test_a_tied_embedding_is_copied_to_the_last_of_several_stages_only():
    net = dataclasses.replace(NET, tied_embeddings=True)
    assert states(net=net)[0] == 2 * (4 * LAYER + ENDS / 2)
    last = device_memory.stage_memory(cases(net=net, pp=2), load_memory(), np.asarray(1))
    assert float(last.weights_bytes) == 2 * (2 * LAYER + ENDS / 2)


def test_zero_3_gathers_whole_layers_for_a_moment():
    """FSDP2 holds its fitted share of three layers, and the embedding and the head, in 16 bits."""
    found = device_memory.estimate(cases(profile="torchtitan", dp=4, sharding=Sharding.ZERO3, micro_batch=64))
    layers = 3 * load_memory().unsharded_layers
    assert float(found.unsharded_bytes) == pytest.approx(2 * (layers * LAYER + ENDS), rel=1e-12)


def test_qlora_unpacks_its_largest_matrix():
    found = device_memory.estimate(cases(profile="peft", method=Method.QLORA, micro_batch=64))
    assert float(found.unsharded_bytes) == 2 * 8 * 16  # of 8 x 16 in the MLP, and 192 / 4 in attention
