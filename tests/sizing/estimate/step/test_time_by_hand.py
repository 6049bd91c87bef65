"""Seconds worked out by hand for one small network on a stated GPU, exactly.

Every fitted share is 1 and every fitted time 0, unless a test says otherwise; rates that a test does not name
are so fast that they take no time. What is left are FLOPs, bytes and their rates.

Legend: T tokens of a micro-batch, L layers, h hidden, f feed-forward width, V vocabulary, M micro-batches, N
weights of a layer: attention 2h(q + k) = 192, gated MLP 3hf = 384.
"""

import dataclasses

import numpy as np
import pytest

from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import SelectiveRecompute, framework
from rightsizer_engine.domain.hardware import Cluster, Gpu
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import (
    AttentionKernel,
    Method,
    Precision,
    Quantiser,
    Recompute,
    Workload,
)
from rightsizer_engine.estimate.parameters import load_step_time
from rightsizer_engine.estimate.step import step_time
from rightsizer_engine.estimate.step.schedule import bubble_s

NET = Architecture(
    name="net", layers=4, hidden=8, ffn_hidden=16, heads=2, kv_heads=1, head_dim=4, vocab=32
)  # fmt: skip
SPARSE = dataclasses.replace(NET, experts=8, top_k=2, expert_ffn_hidden=4)
T, L, N, ENDS = 16, 4, 192 + 384, 2 * 32 * 8
FAST = 1e30
SHARES = (
    "plateau", "over_bf16", "fraction", "tile_", "flash_own", "flash_1", "flash_2", "flash_head",
    "sustained", "score_matmul", "grouped", "exposed", "compiled", "hooks", "unaligned_head", "overlapped",
    "adapter_share",
)  # fmt: skip
PLAIN = load_step_time().replace(
    **{name: float(any(part in name for part in SHARES)) for name in load_step_time()}
    | {name: 2.5 for name in load_step_time() if name.startswith("flash_backward")}
)


def one_case(*, net=NET, profile="megatron-core", facts=None, machine=None, node=8, **changes):
    names = {f.name for f in dataclasses.fields(Workload)} - {"recompute"}
    work = {"tokens": 1e9, "sequence_tokens": T, "global_batch_sequences": 64}
    work |= {k: v for k, v in changes.items() if k in names}
    machine = {"flop": FAST, "hbm": FAST, "fast": FAST, "slow": FAST, "pcie": FAST} | (machine or {})
    same = {f"{kind}_flop_per_s": machine["flop"] for kind in ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32")}
    gpu = Gpu(
        name="gpu", architecture="hopper", compute_capability=9.0, memory_bytes=8e10,
        memory_bytes_per_s=machine["hbm"], nvlink_bytes_per_s=FAST, pcie_bytes_per_s=machine["pcie"],
        tdp_w=700.0, streaming_multiprocessors=1, **same,
    )  # fmt: skip
    cluster = Cluster(
        gpu=gpu, gpus_per_node=node, nvlink_domain_gpus=node, intra_bytes_per_s=machine["fast"],
        inter_bytes_per_s=machine["slow"],
    )  # fmt: skip
    return Case(
        architecture=net,
        workload=Workload(**work),
        cluster=cluster,
        framework=dataclasses.replace(framework(profile), **(facts or {})),
        layout=Layout(**{k: v for k, v in changes.items() if k not in names}),
    )


def cases(**changes):
    return Cases.of(one_case(**changes))


def causes(parameters=None, some=None, **changes):
    found = step_time.estimate(some or cases(**changes), PLAIN.replace(**(parameters or {})))
    return {name: pytest.approx(float(value), rel=1e-9, abs=1e-15) for name, value in found.causes.items()}


def total(parameters=None, **changes):
    return float(step_time.estimate(cases(**changes), PLAIN.replace(**(parameters or {}))).total_s)


FLOP = {"machine": {"flop": 1e6}}
MATMUL = 2 * T * N / 1e6
ATTENTION = 2 * T * (T / 2) * 2 * (4 + 4) / 1e6  # causal: T / 2 keys on average, 2 heads, q k and p v


def test_a_step_takes_three_forward_passes_of_matmuls_and_three_and_a_half_of_attention():
    found = causes(**FLOP, micro_batches=5)
    assert found["matmul"] == 5 * L * 3 * MATMUL
    assert found["attention"] == 5 * L * 3.5 * ATTENTION
    assert found["loss"] == 5 * 3 * 2 * T * 32 * 8 / 1e6
    assert found["recompute"] == found["host"] == found["pipeline_bubble"] == 0


def test_frozen_weights_and_heads_need_no_gradient_of_their_own():
    found = causes(**FLOP, method=Method.LORA)
    assert found["matmul"] == L * 2 * MATMUL
    assert found["loss"] == 2 * 2 * T * 32 * 8 / 1e6
    beside = causes(**FLOP, method=Method.LORA, lora_targets="attention+embeddings")
    assert beside["loss"] == 3 * 2 * T * 32 * 8 / 1e6


@pytest.mark.parametrize(
    ("mode", "facts", "again"),
    [
        ({"recompute": Recompute.FULL}, {}, MATMUL + ATTENTION),
        ({"recompute": Recompute.FULL, "recompute_layers": 1}, {}, (MATMUL + ATTENTION) / 4),
        ({"recompute": Recompute.SELECTIVE}, {"selective": SelectiveRecompute.ATTENTION_CORE}, ATTENTION),
        ({"recompute": Recompute.SELECTIVE}, {"selective": SelectiveRecompute.OPS}, 0.5 * MATMUL),
        ({"recompute": Recompute.SELECTIVE}, {"selective": SelectiveRecompute.MODULES}, 0.1 * MATMUL),
        (
            {"recompute": Recompute.SELECTIVE},
            {"selective": SelectiveRecompute.BLOCKS},
            0.5 * (MATMUL + ATTENTION),
        ),
    ],
    ids=["all", "a quarter", "the attention core", "operators", "modules", "every second block"],
)
def test_recomputation_pays_its_part_of_a_forward_pass_again(mode, facts, again):
    found = causes(**FLOP, **mode, facts={"recomputes_expert_modules": False} | facts)
    assert found["recompute"] == L * again
    assert found["matmul"] == L * 3 * MATMUL


def test_elementwise_work_reads_narrow_and_wide_tensors_forward_and_twice_backward():
    """5 passes over 2Th bytes and half of 2T(3f + q + v); summing gradients in Megatron's matmuls is free."""
    found = causes({"elementwise_passes_core": 5.0, "wide_share": 0.5}, machine={"hbm": 1e6})
    moved = 5 * (2 * T * 8 + 0.5 * 2 * T * (3 * 16 + 8 + 8))
    assert found["elementwise"] == L * 3 * moved / 1e6


def test_gradients_of_several_micro_batches_are_summed_where_no_matmul_does_it():
    """6 bytes an element in 32 bits; half of that in 16."""
    unfused = {"fused_weight_gradients": False}
    found = causes({"accumulate_bytes": 6.0}, machine={"hbm": 1e6}, facts=unfused)
    assert found["elementwise"] == L * 6 * N / 1e6
    narrow = causes({"accumulate_bytes": 6.0}, machine={"hbm": 1e6}, facts=unfused | {"gradient_bytes": 2.0})
    assert narrow["elementwise"] == L * 3 * N / 1e6


@pytest.mark.parametrize(
    ("quantiser", "each"),
    [(Quantiser.BITSANDBYTES, 3.0), (Quantiser.GPTQ, 7.0)],
    ids=["fused", "by operations"],
)
def test_quantised_weights_are_unpacked_for_forward_and_for_backward(quantiser, each):
    parameters = {"dequantise_bytes": 3.0, "dequantise_unfused_bytes": 7.0}
    hand = causes(parameters, method=Method.QLORA, quantiser=quantiser, machine={"hbm": 1e6})
    base = causes(method=Method.QLORA, quantiser=quantiser, machine={"hbm": 1e6})
    assert hand["matmul"].expected - base["matmul"].expected == pytest.approx(
        2 * L * each * N / 1e6, rel=1e-9
    )


@pytest.mark.parametrize(
    ("split", "passes"),
    [(False, 2 + 2), (True, 2 + 2 * 1.5)],
    ids=["all-reduces", "gathered again in backward"],
)
def test_tensor_parallel_layers_all_reduce_their_tokens_twice_each_way(split, passes):
    """A ring moves S (n-1)/n, an all-reduce twice; with sequence parallelism backward gathers once more."""
    found = causes(
        tp=4, sequence_parallel=split, machine={"fast": 1e9}, facts={"saves_gathered_inputs": False}
    )
    assert found["tensor_parallel"] == L * passes * 2 * (2 * T * 8) * 3 / 4 / 1e9


def test_split_contexts_exchange_keys_and_values_once_forward_and_twice_backward():
    """T/2 tokens of 2 x 8 bytes from each of 2 ranks, of which a ring moves one half."""
    found = causes(cp=2, machine={"fast": 1e9})
    assert found["context_parallel"] == L * 3 * (2 * T * 8) / 2 / 1e9


def test_experts_exchange_their_tokens_there_and_back_each_way():
    """T x top_k tokens of 2h bytes, of which 3 of 4 leave the rank; two all-to-alls forward, two backward."""
    found = causes(net=SPARSE, dp=4, ep=4, machine={"fast": 1e9})
    assert found["expert_parallel"] == L * 4 * (T * 2 * 2 * 8) * 3 / 4 / 1e9


def test_a_token_leaves_for_another_node_once():
    """On 2 nodes a token of 2 experts goes to the other one with 1 - (1/2)^2; inside a node is free."""
    found = causes(net=SPARSE, dp=4, ep=4, node=2, machine={"slow": 1e9})
    assert found["expert_parallel"] == L * 4 * (T * 2 * 8) * (1 - 1 / 4) / 1e9


def test_zero_3_gathers_weights_twice_and_scatters_gradients_once():
    """(2 + 2 + 4) bytes a weight; a ring over 8 ranks moves 7/8 of them."""
    found = causes(profile="torchtitan", dp=8, sharding=Sharding.ZERO3, machine={"fast": 1e9})
    assert found["sharding"] == L * (2 + 2 + 4) * N * 7 / 8 / 1e9
    assert found["data_parallel"] == 0


@pytest.mark.parametrize(
    ("sharding", "bytes_per_weight"),
    [(Sharding.NONE, 4 * 2), (Sharding.ZERO1, 4 + 2)],
    ids=["an all-reduce", "a scatter of gradients and a gather of weights"],
)
def test_replicas_exchange_gradients_once_a_step(sharding, bytes_per_weight):
    found = causes(dp=8, sharding=sharding, micro_batches=5, machine={"fast": 1e9})
    assert found["data_parallel"] == bytes_per_weight * (L * N + ENDS) * 7 / 8 / 1e9


def test_zero_2_of_deepspeed_scatters_after_every_micro_batch():
    found = causes(
        profile="deepspeed-zero", dp=8, sharding=Sharding.ZERO2, micro_batches=5, machine={"fast": 1e9}
    )
    assert found["data_parallel"] == 5 * (2 + 2) * (L * N + ENDS) * 7 / 8 / 1e9


def test_gradients_hide_behind_the_backward_passes_of_the_last_micro_batch():
    """Half the traffic hides, as far as half of 4 layers' backward takes: 2 matmuls and 2.5 attentions."""
    machine = {"fast": 1e9, "flop": 1e10}
    found = causes({"data_exposed": 0.5, "data_window": 0.5}, dp=8, machine=machine)
    traffic = 8 * (L * N + ENDS) * 7 / 8 / 1e9
    window = 0.5 * L * (2 * MATMUL + 2.5 * ATTENTION) * 1e6 / 1e10
    assert 0 < window < 0.5 * traffic
    assert found["data_parallel"] == 0.5 * traffic + (0.5 * traffic - window)


@pytest.mark.parametrize(("pp", "vpp"), [(2, 1), (4, 1), (2, 2)])
def test_a_pipeline_takes_m_plus_p_minus_1_over_v_turns_of_its_stages(pp, vpp):
    """(M + (p-1)/v) turns for M, arXiv:2104.04473, section 2.2; without a vocabulary all stages are equal."""
    net = dataclasses.replace(NET, vocab=1)
    alone = total(**FLOP, net=net, micro_batches=8)
    piped = total(**FLOP, net=net, micro_batches=8, pp=pp, vpp=vpp)
    assert piped == pytest.approx(alone / pp * (8 + (pp - 1) / vpp) / 8, rel=1e-9)


def test_the_bubble_is_every_other_stage_s_turn():
    found = bubble_s(cases(pp=4), np.asarray(3.0), np.asarray(5.0))
    assert float(found) == 3 * 3 + 5 - 5
    assert float(bubble_s(cases(), np.asarray(3.0), np.asarray(3.0))) == 0


@pytest.mark.parametrize("tp", [1, 2])
def test_stages_send_activations_forward_and_gradients_back(tp):
    """M (p-1)/p + p - 1 messages of 2Th/t bytes each way."""
    found = causes(pp=2, tp=tp, micro_batches=8, machine={"fast": 1e9})
    assert found["pipeline_transfer"] == 2 * (8 / 2 + 1) * (2 * T * 8) / tp / 1e9


def test_stages_on_other_nodes_send_over_the_network():
    found = causes(pp=2, micro_batches=8, node=1, machine={"slow": 1e9})
    assert found["pipeline_transfer"] == 2 * (8 / 2 + 1) * (2 * T * 8) / 1e9


def test_the_optimizer_reads_its_states_once_over_the_ranks_that_share_them():
    whole, split, copied = (
        causes({"optimizer_bytes": 30.0}, dp=dp, sharding=kind, machine={"hbm": 1e6})["optimizer"]
        for dp, kind in ((1, Sharding.ZERO1), (8, Sharding.ZERO1), (8, Sharding.NONE))
    )
    assert whole == copied == 30 * (L * N + ENDS) / 1e6
    assert split == 30 * (L * N + ENDS) / 8 / 1e6


def test_a_tied_embedding_s_gradients_are_summed_across_the_pipeline():
    net = dataclasses.replace(NET, tied_embeddings=True)
    found = causes(net=net, pp=2, machine={"fast": 1e9})
    assert found["optimizer"] == 4 * 32 * 8 / 1e9
    assert causes(net=net, machine={"fast": 1e9})["optimizer"] == 0


@pytest.mark.parametrize(
    ("changes", "forward", "backward"),
    [
        ({}, 0.1, 0.1 * 2),
        ({"recompute": Recompute.FULL}, 0.1, 0.1 * (2 + 1)),
        ({"tp": 4}, 0.1 * (1 + 0.5 * 2), 0.1 * (1 + 0.5 * 2) * 2),
    ],
    ids=["once", "recomputed", "more launches on tensor ranks"],
)
def test_a_gpu_without_work_waits_for_every_launch(changes, forward, backward):
    parameters = {"host_layer_s_core": 0.1, "host_backward": 2.0, "host_tensor_growth": 0.5}
    assert causes(parameters, **changes)["host"] == L * (forward + backward)


def test_experts_wait_for_their_counts():
    net = dataclasses.replace(SPARSE, dense_layers=1)
    assert causes({"expert_wait_s": 0.01}, net=net)["host"] == L * 3 / 4 * 0.01


def test_the_host_and_the_gpu_overlap_as_a_smooth_maximum():
    found = causes({"host_layer_s_core": MATMUL + ATTENTION}, **FLOP)
    assert found["host"] == L * (2 ** (1 / 4) - 1) * (MATMUL + ATTENTION)


def test_fixed_seconds_come_once_a_step_and_sharded_layers_add_theirs():
    parameters = {"step_fixed_s": 3.0, "step_layer_s_fsdp2": 0.5}
    assert causes(parameters, profile="torchtitan", dp=8, micro_batches=9)["host"] == 3
    sharded = causes(parameters, profile="torchtitan", dp=8, sharding=Sharding.ZERO3, micro_batches=9)
    assert sharded["host"] == 3 + 4 * 0.5


def test_every_doubling_of_nodes_adds_its_jitter():
    one, eight = (total({"step_fixed_s": 3.0, "node_jitter": 0.01}, dp=8 * nodes) for nodes in (1, 8))
    assert one == pytest.approx(3.0)
    assert eight == pytest.approx(3.0 * (1 + 0.01 * 3))


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"offload": Offload.PARAMETERS}, 2 * 2 * N),  # 16-bit weights for forward and for backward
        ({"offload": Offload.PARAMETERS, "dp": 8, "sharding": Sharding.ZERO3}, 2 * 2 * N / 8),
        ({"offload": Offload.ACTIVATIONS, "recompute": Recompute.FULL}, 2 * (2 * T * 8)),
        ({"offload": Offload.ACTIVATIONS}, 2 * (2 * T * 64 + 8 * 2 * T * 8)),
        ({"offload": Offload.ACTIVATIONS, "offload_percent": 25}, 2 * (2 * T * 64 + 8 * 2 * T * 8) / 4),
    ],
    ids=["weights", "a shard of the weights", "boundaries", "all activations", "one layer of four"],
)
def test_offloaded_bytes_cross_the_host_link_twice(changes, moved):
    found = causes(**changes, machine={"pcie": 1e9})["offload"].expected
    assert found == pytest.approx(L * moved / 1e9, rel=1e-5)  # all but what the layer's picoseconds hide


def test_eager_attention_computes_and_moves_all_scores():
    """A product of half the causal FLOPs' count each for q k and p v; the scores pass 3 times, twice back."""
    found = causes({"score_passes": 3.0}, attention=AttentionKernel.EAGER, machine={"hbm": 1e6})
    moved = 2 * T * T * 2 / 1e6
    assert found["attention"] == L * 3 * (3 + 2) * moved


def test_heads_that_no_kernel_is_made_for_take_longer():
    """Heads of 4 are no multiple of 8."""
    found = causes({"unaligned_head": 6.0}, attention=AttentionKernel.EAGER, machine={"hbm": 1e6})
    assert found["attention"] == L * 3 * 6 * 2 * (2 * T * T * 2) / 1e6


@pytest.mark.parametrize(("year", "nics"), [(2021.9, 1), (2022.0, 4)])
def test_early_deepspeed_gathered_over_one_nic_of_a_node(year, nics):
    old = {"profile": "deepspeed-zero", "library_year": year}
    found = causes(**old, dp=8, node=4, sharding=Sharding.ZERO3, machine={"slow": 1e8})
    assert found["sharding"] == L * (2 + 2 + 2) * N * 7 / 8 / (nics * 1e8)


def test_fp8_reads_and_writes_operands_once_more_to_cast_them():
    """A quarter of a pass's bytes each: of inputs, weights and results of 2 bytes, of every matmul."""
    shapes = [(T, 16, 8), (T, 8, 8), (T, 32, 8), (T, 8, 16)]
    operands = sum(2 * (m * k + k * n + m * n) for m, n, k in shapes)
    with_casts, without = (
        causes({"cast_passes": passes}, precision=Precision.FP8, machine={"hbm": 1e6})["matmul"].expected
        for passes in (1.0, 0.0)
    )
    assert with_casts - without == pytest.approx(L * 0.25 * operands / 1e6)


def test_the_loss_moves_its_logits():
    found, without = (
        causes({"loss_bytes": each}, machine={"hbm": 1e6})["loss"].expected for each in (60.0, 0.0)
    )
    assert found - without == pytest.approx(60 * T * 32 / 1e6)


def test_interleaved_pipelines_hide_more_of_the_exchange():
    """2 stages of 2 chunks drain in 1 + (p-1)(v-1)/v = 1.5 backward passes of a stage's 2 layers."""
    found = causes(
        {"data_exposed": 0.5, "data_window": 0.5}, dp=8, pp=2, vpp=2, micro_batches=8, node=64,
        machine={"fast": 1e9, "flop": 2e10},
    )  # fmt: skip
    traffic = 8 * (2 * N + ENDS / 2) * 7 / 8 / 1e9
    window = 0.5 * 2 * 1.5 * (2 * MATMUL + 2.5 * ATTENTION) * 1e6 / 2e10
    assert 0 < window < 0.5 * traffic
    assert found["data_parallel"] == traffic - window


def test_fp16_gradients_travel_in_16_bits():
    found = causes(dp=8, precision=Precision.FP16, machine={"fast": 1e9})
    assert found["data_parallel"] == 2 * 2 * (L * N + ENDS) * 7 / 8 / 1e9


def test_a_dense_network_beside_a_sparse_one_waits_for_no_experts_exchange():
    both = Cases.stack([one_case(dp=8), one_case(dp=8, net=SPARSE)])
    found = step_time.estimate(both, PLAIN.replace(ring_latency_s=1.0))
    assert found.data_parallel_s == pytest.approx([2.0 / 2, 2 * 2.0 / 2])
