import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Columns
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import (
    Method,
    Precision,
    Quantiser,
    Recompute,
    ScaleGranularity,
    Workload,
)
from rightsizer_engine.estimate.parameters import load_step_time
from rightsizer_engine.estimate.step import step_time
from rightsizer_engine.estimate.step.inputs import step_inputs
from rightsizer_engine.estimate.step.layer_compute import accumulated_s
from rightsizer_engine.estimate.step.layer_time import layer_time
from rightsizer_engine.published.rows import case_from_row

ROWS = list(csv.DictReader((Path(__file__).parent / "published_steps.csv").read_text("utf-8").splitlines()))
MODEL_FLOP_PER_TOKEN_8B = 6 * 7.5e9  # matmul parameters of Llama-3.1-8B without the input embedding


def case(**layout: int) -> Case:
    split = {"dp": 8, "sharding": Sharding.ZERO3, "micro_batch": 1, "micro_batches": 4} | layout
    return Case(
        architecture=lookup.model("meta-llama/Llama-3.1-8B"),
        workload=Workload(tokens=1e11, sequence_tokens=8192, global_batch_sequences=32),
        cluster=lookup.cluster("H100-SXM5-80GB"),
        framework=framework("torchtitan"),
        layout=Layout(**split),  # type: ignore[arg-type]
    )


def seconds(one: Case) -> float:
    return float(step_time.estimate(Cases.of(one)).total_s)


LAYOUTS = st.builds(
    case,
    dp=st.sampled_from([1, 2, 8, 64, 512]),
    tp=st.sampled_from([1, 2, 8, 16]),
    pp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 4]),
    sharding=st.sampled_from(list(Sharding)),
    micro_batch=st.sampled_from([1, 2, 8]),
    micro_batches=st.sampled_from([8, 16, 64]),
    recompute=st.sampled_from([Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL]),
)
FEW = settings(max_examples=20, deadline=None)


@pytest.mark.parametrize("row", ROWS, ids=[f"{r['model_name']} {r['gpus']} {r['gpu']}" for r in ROWS])
def test_a_published_step_is_met(row: dict[str, str]) -> None:
    """Each within 30 %; the sources are in the table."""
    assert seconds(case_from_row(row)) == pytest.approx(float(row["step_time_s"]), rel=0.3)


def test_published_steps_are_met_on_average() -> None:
    cases = Cases.stack(case_from_row(row) for row in ROWS)
    error = np.log(step_time.estimate(cases).total_s / [float(row["step_time_s"]) for row in ROWS])
    assert np.mean(np.abs(error)) < 0.07


def test_the_total_is_the_sum_of_its_causes() -> None:
    found = step_time.estimate(Cases.of(case()))
    assert float(found.total_s) == pytest.approx(sum(float(v) for v in found.causes.values()))


@FEW
@given(LAYOUTS)
def test_every_cause_is_finite_and_not_negative(one: Case) -> None:
    found = step_time.estimate(Cases.of(one))
    assert all(np.isfinite(v) and v >= 0 for v in found.causes.values())


@FEW
@given(LAYOUTS)
def test_nothing_runs_above_the_peak(one: Case) -> None:
    layout = one.layout
    tokens = layout.dp * layout.micro_batch * layout.micro_batches * 8192
    least = MODEL_FLOP_PER_TOKEN_8B * tokens / (one.cluster.gpu.bf16_flop_per_s * layout.gpus)
    assert seconds(one) > least


def test_offloaded_activations_cost_what_their_layer_does_not_hide() -> None:
    shares = [seconds(case(offload=Offload.ACTIVATIONS, offload_percent=n)) for n in (1, 50, 0)]  # 0: all
    assert seconds(case()) == shares[0] <= shares[1] < shares[2]


def test_sequence_parallel_inputs_are_gathered_again() -> None:
    one = replace(case(dp=1, tp=8, sequence_parallel=True), framework=framework("megatron-core"))
    keeps = replace(one, framework=replace(one.framework, saves_gathered_inputs=True))
    traffic = [step_time.estimate(Cases.of(c)).tensor_parallel_s for c in (keeps, one)]
    assert 1.05 < float(traffic[1] / traffic[0]) < 1.5


def test_recompute_by_operators_gathers_split_inputs_again() -> None:
    modes = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    layouts = [case(dp=1, tp=8, sequence_parallel=True, recompute=mode) for mode in modes]
    none, some, full = (float(step_time.estimate(Cases.of(c)).tensor_parallel_s) for c in layouts)
    assert (some / none, full / none) == pytest.approx((1.25, 1.5))


@pytest.mark.parametrize(
    ("scaling", "less"), [(ScaleGranularity.TENSOR, True), (ScaleGranularity.ROW, False)], ids=str
)
def test_weights_cast_before_they_are_gathered_cost_less(scaling: ScaleGranularity, less: bool) -> None:
    one = case(dp=64)
    one = replace(one, workload=replace(one.workload, precision=Precision.FP8, scaling=scaling))
    cast = replace(one, framework=replace(one.framework, gathers_fp8_weights=True))
    plain, found = (step_time.estimate(Cases.of(c)) for c in (one, cast))
    assert bool(found.sharding_s < plain.sharding_s) is bool(found.matmul_s < plain.matmul_s) is less


def test_torch_does_not_hide_gathers_of_operands_with_a_scale_for_each_row() -> None:
    one = case(dp=1, tp=8, sequence_parallel=True)
    one = replace(one, framework=replace(one.framework, overlaps_tensor_parallel=True))
    words = [
        replace(one.workload, precision=Precision.FP8, scaling=s)
        for s in (ScaleGranularity.TENSOR, ScaleGranularity.ROW)
    ]
    whole, by_row = (
        float(step_time.estimate(Cases.of(replace(one, workload=w))).tensor_parallel_s) for w in words
    )
    least = load_step_time().tensor_exposed
    assert by_row / whole == pytest.approx((0.5 + 0.5 * least) / least)


def test_parts_of_a_split_context_are_merged() -> None:
    one = case(dp=1, cp=4)
    other = replace(one, framework=replace(one.framework, merges_context_parts=False))
    found, bare = (step_time.estimate(Cases.of(c)) for c in (one, other))
    bytes_ = 3 * (40 + 58) * 2048 * 4096 * 32 * 4  # parts, elements of the result, layers, micro-batches
    hbm = one.cluster.gpu.memory_bytes_per_s * load_step_time().hbm_fraction_hopper
    assert float(found.attention_s - bare.attention_s) == pytest.approx(bytes_ / hbm)
    assert float(found.context_parallel_s / bare.context_parallel_s) > 2  # 32 heads' keys, not 8's


@FEW
@given(LAYOUTS)
def test_more_micro_batches_take_longer(one: Case) -> None:
    more = replace(one, layout=replace(one.layout, micro_batches=one.layout.micro_batches * 2))
    assert seconds(more) > seconds(one)


@FEW
@given(LAYOUTS)
def test_longer_sequences_take_longer(one: Case) -> None:
    longer = replace(one, workload=replace(one.workload, sequence_tokens=16384))
    assert seconds(longer) > seconds(one)


@FEW
@given(LAYOUTS)
def test_a_faster_network_is_never_slower(one: Case) -> None:
    cluster = replace(one.cluster, inter_bytes_per_s=one.cluster.inter_bytes_per_s * 2)
    assert seconds(replace(one, cluster=cluster)) <= seconds(one) * (1 + 1e-9)


@FEW
@given(LAYOUTS)
def test_a_faster_gpu_is_never_slower(one: Case) -> None:
    gpu = one.cluster.gpu
    faster = replace(
        gpu, bf16_flop_per_s=gpu.bf16_flop_per_s * 1.3, fp16_flop_per_s=gpu.fp16_flop_per_s * 1.3
    )
    assert seconds(replace(one, cluster=replace(one.cluster, gpu=faster))) <= seconds(one) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        ({"compile": False}, {"compile": True}),
        ({"method": Method.QLORA, "quantiser": Quantiser.GPTQ}, {"method": Method.QLORA}),
    ],
    ids=["eager kernels", "weights unpacked by torch"],
)
def test_a_slower_recipe_is_slower(slower, faster) -> None:
    one = case()
    times = [seconds(replace(one, workload=replace(one.workload, **changes))) for changes in (slower, faster)]
    assert times[0] > 1.03 * times[1]


def test_scales_matter_to_eight_bits_only() -> None:
    one = case()
    assert seconds(replace(one, workload=replace(one.workload, scaling=ScaleGranularity.ROW))) == seconds(one)


@FEW
@given(LAYOUTS)
def test_recomputing_everything_is_never_faster(one: Case) -> None:
    nothing, everything = (
        replace(one, layout=replace(one.layout, recompute=mode)) for mode in (Recompute.NONE, Recompute.FULL)
    )
    assert seconds(everything) > seconds(nothing)


def test_columns_of_layouts_give_what_single_cases_give() -> None:
    layouts = [case(dp=8).layout, case(dp=4, tp=2, micro_batches=8).layout, case(dp=2, pp=4).layout]
    together = step_time.estimate(Cases.of(case(), layouts=Columns.stack(layouts))).total_s
    assert together == pytest.approx([seconds(replace(case(), layout=one)) for one in layouts])


@pytest.mark.parametrize("method", list(Method))
def test_every_method_has_a_price(method: Method) -> None:
    assert seconds(replace(case(), workload=replace(case().workload, method=method))) > 0


def test_a_head_trained_beside_adapters_costs_its_gradient() -> None:
    one = replace(case(), framework=framework("peft"))
    one = replace(one, workload=replace(one.workload, method=Method.LORA))
    whole = replace(one, workload=replace(one.workload, lora_targets="all+embeddings"))
    assert seconds(whole) > 1.01 * seconds(one)


@pytest.mark.parametrize("precision", [Precision.FP8, Precision.BF16], ids=str)
def test_adapters_are_cheaper_than_training_everything(precision: Precision) -> None:
    whole = replace(case().workload, precision=precision)
    adapters = replace(whole, method=Method.LORA)
    assert seconds(replace(case(), workload=adapters)) < seconds(replace(case(), workload=whole))


def test_every_catalogued_gpu_has_a_price() -> None:
    for gpu in lookup.gpus():
        assert 0 < seconds(replace(case(), cluster=lookup.cluster(gpu.name))) < np.inf, gpu.name


@pytest.mark.parametrize(
    "model", ["deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-30B-A3B", "mistralai/Mixtral-8x7B-v0.1"]
)
def test_experts_have_a_price(model: str) -> None:
    one = replace(case(ep=8), architecture=lookup.model(model), framework=framework("megatron-core"))
    found = step_time.estimate(Cases.of(one))
    assert float(found.expert_parallel_s) > 0


def experts(name: str, *, year: float = 2025.0, micro_batch: int = 1, ep: int = 32) -> Case:
    return Case(
        architecture=lookup.model("deepseek-ai/DeepSeek-V3"),
        workload=Workload(
            tokens=1e12,
            sequence_tokens=4096,
            global_batch_sequences=4096,
            precision=Precision.FP8,
            library_year=year,
        ),
        cluster=lookup.cluster("B200"),
        framework=framework(name),
        layout=Layout(dp=32, pp=8, ep=ep, micro_batch=micro_batch, micro_batches=128 // micro_batch),
    )


def test_kernels_fused_over_experts_are_faster_than_one_expert_at_a_time() -> None:
    assert seconds(experts("megatron-bridge", year=2026.5)) < 0.95 * seconds(experts("megatron-bridge"))


def test_sparse_layers_wait_for_a_host_that_counts_tokens_but_grace_hardly_does() -> None:
    def host_s(gpu: str) -> float:
        one = replace(experts("megatron-core", micro_batch=8), cluster=lookup.cluster(gpu))
        return float(step_time.estimate(Cases.of(one)).host_s)

    assert host_s("B200") > host_s("GB200") + 0.01


def test_an_exchange_of_experts_behind_compute_costs_less() -> None:
    plain, hidden = (
        step_time.estimate(Cases.of(experts(name))).expert_parallel_s for name in ("megatron-core", "hai-llm")
    )
    assert hidden < 0.5 * plain


def test_an_unknown_framework_in_8_bits_overlaps_tensor_parallelism() -> None:
    def share(precision: Precision) -> float:
        one = case(tp=8)
        one = replace(one, framework=framework("unknown-parallel"))
        one = replace(one, workload=replace(one.workload, precision=precision))
        return float(step_time.estimate(Cases.of(one)).tensor_parallel_s)

    assert share(Precision.FP8) < 0.9 * share(Precision.BF16)


def test_attention_of_an_unknown_framework_is_between_its_two_candidates() -> None:
    def attention_s(name: str) -> float:
        one = replace(case(tp=8), framework=framework(name))
        return float(step_time.estimate(Cases.of(one)).attention_s)

    assert attention_s("megatron-core") < attention_s("unknown-parallel") < attention_s("nanotron")


def test_keys_gathered_before_attention_are_not_hidden() -> None:
    ring, gather_rows = (
        step_time.estimate(Cases.of(replace(case(cp=4, dp=2), framework=framework(name)))).context_parallel_s
        for name in ("megatron-core", "torchtitan")
    )
    assert gather_rows > 2 * ring


def test_sums_of_gradients_weigh_on_small_micro_batches() -> None:
    """Equal sequences in twice as many micro-batches: worse where no matmul adds to the sum."""

    def price(name: str) -> float:
        one = replace(case(tp=8, sharding=Sharding.ZERO1), framework=framework(name))
        small = replace(one, layout=replace(one.layout, micro_batches=64))
        large = replace(one, layout=replace(one.layout, micro_batches=32, micro_batch=2))
        return float(step_time.estimate(Cases.of(small)).elementwise_s) / float(
            step_time.estimate(Cases.of(large)).elementwise_s
        )

    assert price("megatron-deepspeed") > price("megatron-lm-2022") * 1.02


def test_launches_as_slow_as_the_gpu_make_it_wait_and_far_slower_or_faster_ones_do_not_add() -> None:
    """The smooth maximum of both: 2^(1/4) where they are equal, the larger one far away."""
    eager = replace(case(sharding=Sharding.NONE), framework=framework("megatron-lm-2022"))
    known = step_inputs(Cases.of(eager), load_step_time())
    alone = layer_time(replace(known, parameters=known.parameters.replace(host_layer_s_megatron=1e-9)))
    slow = layer_time(replace(known, parameters=known.parameters.replace(host_layer_s_megatron=1.0)))
    equal = known.parameters.replace(host_layer_s_megatron=float(alone.forward_s))
    both = layer_time(replace(known, parameters=equal))
    assert float(alone.host_s) == pytest.approx(0.0, abs=1e-9)
    assert float(slow.forward_s) == pytest.approx(1.0, rel=1e-3)
    assert float(both.forward_s / alone.forward_s) == pytest.approx(2**0.25)


@pytest.mark.parametrize(
    ("name", "precision", "year", "ratio"),
    [
        ("megatron-deepspeed", Precision.FP16, 2022.0, 0.5),
        ("deepspeed-zero", Precision.BF16, 2022.0, 0.5),
        ("megatron-lm-2022", Precision.BF16, 2021.0, 1.0),
        ("megatron-lm-2022", Precision.BF16, 2022.0, 0.0),
    ],
    ids=["fp16 summed in 16 bits", "bf16 summed in 16 bits", "before sums were fused", "fused"],
)
def test_gradients_summed_outside_of_matmuls_cost_traffic(name, precision, year, ratio) -> None:
    one = case(sharding=Sharding.NONE)
    workload = replace(one.workload, precision=precision, library_year=year)
    known = step_inputs(
        Cases.of(replace(one, framework=framework(name), workload=workload)), load_step_time()
    )
    full = 1e9 * known.parameters.accumulate_bytes / float(known.rates.hbm_bytes_per_s)
    assert float(accumulated_s(known, np.asarray(1e9))) == pytest.approx(ratio * full)


@pytest.mark.parametrize(
    ("precision", "ratio"), [(Precision.BF16, 1.5), (Precision.FP16, 1.0)], ids=["bf16", "fp16"]
)
def test_deepspeed_pipelines_reduce_whole_gradients_in_bf16(precision: Precision, ratio: float) -> None:
    """Two ring passes and a gather of weights, where a scatter and a gather would do."""
    traffic = []
    for scatters in (False, True):
        one = case(tp=8, dp=16, sharding=Sharding.ZERO1)
        profile = replace(framework("megatron-deepspeed"), scatters_gradients=scatters)
        workload = replace(one.workload, precision=precision)
        both = Cases.of(replace(one, framework=profile, workload=workload))
        traffic.append(float(step_time.estimate(both).data_parallel_s))
    assert traffic[0] / traffic[1] == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gpu", "per_s"),
    [("deepspeed", "V100", 3.9e9), ("deepspeed", "H100", 2.4 * 3.9e9), ("accelerate", "H100", 2.4 * 6.8e8)],
    ids=["CPU-Adam", "newer host", "torch"],
)
def test_an_optimizer_in_host_memory_is_updated_by_the_processors_of_the_node(name, gpu, per_s):
    """arXiv:2101.06840 Table 4; the weights then go back over the host's link."""
    one = Case(
        architecture=lookup.model("meta-llama/Llama-3.1-8B"),
        workload=Workload(tokens=1e9, sequence_tokens=2048, global_batch_sequences=8),
        cluster=lookup.cluster(gpu),
        framework=framework(name),
        layout=Layout(dp=8, sharding=Sharding.ZERO3, offload=Offload.OPTIMIZER),
    )
    parameters = 8.03e9
    link = one.cluster.gpu.pcie_bytes_per_s * load_step_time().host_link_fraction
    by_hand = parameters / per_s + 2 * parameters / 8 / link
    assert float(step_time.estimate(Cases.of(one)).optimizer_s) == pytest.approx(by_hand, rel=0.02)
