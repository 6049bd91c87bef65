"""FLOPs of an average layer and rates of a GPU, worked out by hand.

Legend: T tokens of a micro-batch, h hidden, f feed-forward width, q and k widths of queries and keys. A layer
of NET has N weights: attention 2h(q + k) = 192, gated MLP 3hf = 384.
"""

import dataclasses

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Method, Precision, Workload
from rightsizer_engine.estimate.parameters import load_step_time
from rightsizer_engine.estimate.prediction import tokens_and_least_s
from rightsizer_engine.estimate.step.kernels import generation, rates
from rightsizer_engine.estimate.step.schedule import stage_layers
from rightsizer_engine.estimate.work import layer_work

NET = Architecture(
    name="net", layers=4, hidden=8, ffn_hidden=16, heads=2, kv_heads=1, head_dim=4, vocab=32
)  # fmt: skip
SPARSE = dataclasses.replace(NET, experts=8, top_k=2, expert_ffn_hidden=4)
T, N = 16, 192 + 384
H100 = lookup.cluster("H100-SXM5-80GB")
SHARES = ("plateau", "over_bf16", "fraction", "sustained")
PLAIN = load_step_time().replace(
    **{name: 1.0 for name in load_step_time() if any(part in name for part in SHARES)},
    power_exponent=0.0,
)
PEAKS = {f"{kind}_flop_per_s": 1e6 for kind in ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32")}
PEAKS |= {"matmul16_flop_per_s": 0.0, "matmul8_flop_per_s": 0.0}  # nothing measured


def one_case(*, net=NET, gpu=None, precision=Precision.BF16, method=Method.PRETRAIN, **layout):
    work = Workload(
        tokens=1e9, sequence_tokens=T, global_batch_sequences=64, precision=precision, method=method
    )  # fmt: skip
    cluster = dataclasses.replace(H100, gpu=dataclasses.replace(H100.gpu, **PEAKS | (gpu or {})))
    return Case(
        architecture=net, workload=work, cluster=cluster, framework=framework("megatron-core"),
        layout=Layout(**layout),
    )  # fmt: skip


def cases(**changes):
    return Cases.of(one_case(**changes))


def test_a_matmul_takes_2mnk_flop():
    work = layer_work(cases(net=NET))
    assert float(work.matmuls.flop.sum()) == 2 * T * N
    assert float(work.attention_flop) == 2 * T * (T / 2) * 2 * (4 + 4)


@pytest.mark.parametrize(
    ("changes", "matmul_flop"),
    [
        ({"tp": 2, "net": dataclasses.replace(NET, kv_heads=2)}, 2 * T * (256 + 384) / 2),
        ({"cp": 2}, 2 * T * N / 2),
        ({"tp": 2, "net": dataclasses.replace(SPARSE, kv_heads=2)}, 2 * T * (256 + 2 * 96 + 64) / 2),
        (
            {"tp": 2, "net": dataclasses.replace(SPARSE, kv_heads=2, shared_experts=1)},
            2 * T * (256 + 3 * 96 + 64) / 2,
        ),
        ({"micro_batch": 3}, 3 * 2 * T * N),
        ({"net": SPARSE}, 2 * T * (192 + 2 * 96 + 8 * 8)),  # two of eight experts of 3hf', and the router
        ({"net": dataclasses.replace(SPARSE, shared_experts=1)}, 2 * T * (192 + 3 * 96 + 8 * 8)),
        ({"net": dataclasses.replace(SPARSE, dense_layers=1)}, 2 * T * (192 + 384 / 4 + 3 / 4 * (192 + 64))),
        ({"net": dataclasses.replace(SPARSE, moe_layer_step=2)}, 2 * T * (192 + 384 / 2 + (192 + 64) / 2)),
        ({"net": dataclasses.replace(NET, gated_mlp=False)}, 2 * T * (192 + 256)),
    ],
)
def test_an_average_layer_s_matmuls_follow_from_its_dimensions(changes, matmul_flop):
    assert float(layer_work(cases(**changes)).matmuls.flop.sum()) == pytest.approx(matmul_flop, rel=1e-12)


def test_latent_attention_multiplies_with_its_low_rank_factors():
    """q 8x6 and 6x2(3+2); keys and values 8x(4+2) and 4x2(3+5); output 2*5x8. A head is 5 wide, as values."""
    low_rank = {"q_lora_rank": 6, "kv_lora_rank": 4}
    heads = {"qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 5}
    net = dataclasses.replace(NET, attention="mla", **low_rank, **heads)
    work = layer_work(cases(net=net))
    weights = 8 * 6 + 6 * 2 * 5 + 8 * (4 + 2) + 4 * 2 * (3 + 5) + 2 * 5 * 8 + 384
    assert float(work.matmuls.flop.sum()) == 2 * T * weights
    assert float(work.attention_flop) == 2 * T * (T / 2) * 2 * (5 + 5)
    shared = 8 * 6 + 8 * (4 + 2)  # the low-rank factors are on every tensor rank
    halves = layer_work(cases(net=net, tp=2))
    assert float(halves.matmuls.flop.sum()) == 2 * T * (shared + (weights - shared) / 2)


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"sliding_window": 4, "sliding_layers": 1}, (3 * 8 + 4 * (1 - 4 / 32)) / 4),
        ({"family": "encoder"}, 16),
        ({"sliding_window": 64, "sliding_layers": 4}, 8),
        ({"family": "encoder-decoder", "encoder_layers": 4, "encoder_tokens": 8}, 8 * (1 + 2 / 4 + 2 / 2)),
    ],
    ids=[
        "a window in one of four layers",
        "an encoder sees all",
        "a window wider than the sequence",
        "half as many encoder tokens, and cross-attention",
    ],
)
def test_attention_s_flop_counts_the_keys_that_are_seen(changes, keys):
    work = layer_work(cases(net=dataclasses.replace(NET, **changes)))
    assert float(work.attention_flop) == pytest.approx(2 * T * keys * 2 * (4 + 4), rel=1e-12)


@pytest.mark.parametrize(
    ("precision", "flop_per_s"),
    [(Precision.BF16, 1e6), (Precision.FP16, 1e6), (Precision.FP8, 0.5e6), (Precision.NVFP4, 0.25e6)],
)
def test_low_precisions_take_their_own_peak_times_their_ratio(precision, flop_per_s):
    some = cases(precision=precision)
    found = rates(some, PLAIN.replace(fp8_over_bf16_hopper=0.5, fp4_over_bf16=0.25))
    assert float(found.matmul_flop_per_s) == flop_per_s
    assert bool(found.low_precision) == (flop_per_s < 1e6)


@pytest.mark.parametrize(
    ("precision", "gpu", "flop_per_s"),
    [
        (Precision.FP8, {"fp8_flop_per_s": 0.0, "fp4_flop_per_s": 0.0}, 1e6),
        (Precision.NVFP4, {"fp4_flop_per_s": 0.0}, 1e6),
        (Precision.FP16, {"fp16_flop_per_s": 2e6}, 2e6),
        (Precision.BF16, {"bf16_flop_per_s": 0.0, "fp16_flop_per_s": 2e6}, 2e6),
        (Precision.FP32, {"tf32_flop_per_s": 0.5e6}, 0.5e6),
        (Precision.FP32, {"tf32_flop_per_s": 0.0, "fp32_flop_per_s": 0.25e6}, 0.25e6),
        (Precision.FP32, {"tf32_flop_per_s": 0.0, "fp32_flop_per_s": 0.0}, 1e6 / 8),
    ],
)
def test_a_precision_that_the_part_lacks_falls_back_to_another(precision, gpu, flop_per_s):
    found = rates(cases(precision=precision, gpu=gpu), PLAIN)
    assert float(found.matmul_flop_per_s) == flop_per_s
    assert not found.low_precision


@pytest.mark.parametrize(
    ("architecture", "watts", "share"),
    [("hopper", 350.0, 0.5), ("blackwell", 600.0, 0.5), ("ampere", 100.0, 1.0), ("hopper", 0.0, 1.0)],
)
def test_since_hopper_long_jobs_keep_a_power_of_the_part_s_power_limit(architecture, watts, share):
    gpu = {"architecture": architecture, "tdp_w": watts}
    p = PLAIN.replace(power_exponent=1.0)
    assert float(rates(cases(gpu=gpu), p).matmul_flop_per_s) == pytest.approx(share * 1e6)


def test_a_measured_matmul_replaces_the_power_law():
    p = PLAIN.replace(power_exponent=1.0)
    gpu = {"architecture": "hopper", "tdp_w": 350.0, "matmul16_flop_per_s": 0.5 * 794.5 / 989.4 * 1e6}
    assert float(rates(cases(gpu=gpu), p).matmul_flop_per_s) == pytest.approx(0.5e6)
    assert float(rates(cases(gpu=gpu | {"power_limit_w": 175.0}), p).matmul_flop_per_s) == pytest.approx(
        0.25e6
    )


@pytest.mark.parametrize(("count", "used"), [(132, 132), (0, 128)])
def test_a_part_without_published_multiprocessors_has_128(count, used):
    assert int(rates(cases(gpu={"streaming_multiprocessors": count}), PLAIN).multiprocessors) == used


@pytest.mark.parametrize(
    ("gpu", "code"),
    [
        ({"architecture": "turing", "memory_bytes_per_s": 3e11, "nvlink_bytes_per_s": 0.0}, 0),
        ({"architecture": "ada", "memory_bytes_per_s": 1e12, "nvlink_bytes_per_s": 0.0}, 5),
        ({"architecture": "ampere", "memory_bytes_per_s": 1e12, "nvlink_bytes_per_s": 3e11}, 1),
        ({"architecture": "ampere", "memory_bytes_per_s": 1.5e12, "nvlink_bytes_per_s": 0.0}, 1),
        ({"architecture": "blackwell", "memory_bytes_per_s": 1.8e12, "nvlink_bytes_per_s": 0.0}, 5),
        ({"architecture": "cdna3", "memory_bytes_per_s": 1e12, "nvlink_bytes_per_s": 0.0}, 4),
        ({"architecture": "of the future"}, 2),
    ],
    ids=["turing", "GDDR6", "NVLink", "HBM", "GDDR7", "cdna", "unknown"],
)
def test_a_part_without_hbm_shares_the_curves_of_cards(gpu, code):
    assert int(generation(cases(gpu=gpu).gpu)) == code


@pytest.mark.parametrize(("method", "share"), [(Method.PRETRAIN, 1.0), (Method.LORA, 2 / 3)])
def test_a_step_at_peak_takes_6_flop_a_weight_and_12_a_width_and_key(method, share):
    """6 (4 N + head) + 12 x 4 layers x 8 wide x T/2 keys; frozen weights save a third."""
    some = cases(method=method, dp=2, tp=2, micro_batch=3, micro_batches=5)
    tokens, least_s = tokens_and_least_s(some)
    per_token = 6 * (4 * N + 32 * 8) + 12 * 4 * 8 * T / 2
    assert float(tokens) == 2 * 3 * 5 * T
    assert float(least_s) == pytest.approx(2 * 3 * 5 * T * per_token * share / (4 * 1e6))


@pytest.mark.parametrize(
    ("layers", "pp", "middle", "last"), [(5, 1, 5, 5), (5, 2, 3, 2), (4, 2, 2, 2), (6, 4, 2, 1), (1, 2, 1, 1)]
)
def test_layers_that_do_not_divide_leave_the_last_stage_shorter(layers, pp, middle, last):
    dealt = stage_layers(cases(net=dataclasses.replace(NET, layers=layers), pp=pp))
    assert (float(dealt.middle_layers), float(dealt.last_layers)) == (middle, last)


def test_networks_side_by_side_have_only_their_own_matmuls():
    work = layer_work(Cases.stack([one_case(), one_case(net=SPARSE)]))
    assert list(work.matmuls.flop.sum(axis=0)) == [2 * T * N, 2 * T * (192 + 2 * 96 + 64)]
