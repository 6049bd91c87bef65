import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import LossKernel, Method, Precision, Recompute, Workload
from rightsizer_engine.estimate.memory import device_memory, per_stage
from rightsizer_engine.estimate.parameters import load_memory
from rightsizer_engine.estimate.uncertainty import memory_sigma

LLAMA = lookup.model("Llama-3-8B")
H100 = lookup.cluster("H100-SXM5-80GB")
GIB = 2.0**30


def case(*, architecture=LLAMA, profile="megatron-core", **changes):
    names = {f.name for f in dataclasses.fields(Workload)}
    work = {"tokens": 1e9, "sequence_tokens": 4096, "global_batch_sequences": 64}
    work |= {k: v for k, v in changes.items() if k in names and k != "recompute"}
    split = {"dp": 8, "micro_batches": 8} | {k: v for k, v in changes.items() if k not in work}
    return Case(
        architecture=architecture,
        workload=Workload(**work),
        cluster=H100,
        framework=framework(profile),
        layout=Layout(**split),
    )


def peak(**changes):
    return float(device_memory.estimate(Cases.of(case(**changes))).allocated_bytes)


def causes(**changes):
    found = device_memory.estimate(Cases.of(case(**changes)))
    return {f.name: float(getattr(found, f.name)) for f in dataclasses.fields(found)}


def test_totals_are_sums_of_causes():
    found = device_memory.estimate(Cases.of(case(pp=2, tp=2)))
    parts = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    assert found.device_bytes == pytest.approx(sum(parts.values()))
    assert found.device_bytes > found.reserved_bytes > found.allocated_bytes


@pytest.mark.parametrize(
    "changes",
    [
        {"pp": 4, "tp": 2, "micro_batches": 1},
        {"profile": "torchtitan", "sharding": Sharding.ZERO3, "micro_batch": 4},
        {"profile": "peft", "method": Method.QLORA, "variable_length": True, "recompute": Recompute.FULL},
    ],
    ids=["pipeline", "FSDP", "QLoRA on batches of any length"],
)
def test_totals_without_causes_are_those_with_them(changes):
    cases, p = device_memory.with_float_counts(Cases.of(case(**changes))), load_memory()
    some = per_stage.stages(cases, p, device_memory.candidates(cases))
    whole, totals = device_memory.fullest_stage(cases, p, some), device_memory.peak(cases, p, some)
    assert totals.allocated_bytes == pytest.approx(whole.allocated_bytes, rel=1e-12)
    assert totals.device_bytes == pytest.approx(whole.device_bytes, rel=1e-12)


@pytest.mark.parametrize(
    ("profile", "sharding", "bytes_per_parameter"),
    [
        ("megatron-core", Sharding.NONE, 18),
        ("megatron-core", Sharding.ZERO1, 6 + 12 / 8),
        ("torchtitan", Sharding.ZERO3, 16 / 8),
        ("deepspeed-zero", Sharding.ZERO2, 2 + 14 / 8),
        ("torchtune", Sharding.NONE, 8),
    ],
    ids=["Megatron", "distributed optimizer", "FSDP2", "ZeRO-2", "bf16 throughout"],
)
def test_states_take_the_bytes_that_the_framework_documents(profile, sharding, bytes_per_parameter):
    found = causes(profile=profile, sharding=sharding)
    states = found["weights_bytes"] + found["gradients_bytes"] + found["optimizer_bytes"]
    assert states == pytest.approx(bytes_per_parameter * LLAMA.parameters_total, rel=0.01)


def test_a_gpt_layer_keeps_what_korthikanti_counts():
    gpt = lookup.model("GPT-3 175B")
    found = causes(
        architecture=gpt, tp=8, sequence_parallel=True, sequence_tokens=2048, micro_batches=1, dp=1
    )
    per_layer = found["activations_bytes"] / gpt.layers
    assert per_layer == pytest.approx(34 * 2048 * gpt.hidden / 8, rel=0.02)  # sbh 34/t, arXiv:2205.05198


def test_the_first_stage_holds_as_many_micro_batches_as_there_are_stages():
    one = causes(pp=1, micro_batches=1)["activations_bytes"]
    index = np.asarray(0)
    held = device_memory.stage_memory(Cases.of(case(pp=4, micro_batches=16)), load_memory(), index)
    assert float(held.activations_bytes) == pytest.approx(one)


def test_full_recomputation_keeps_one_boundary_per_layer():
    found = causes(recompute=Recompute.FULL, profile="fsdp2", sharding=Sharding.ZERO3)
    assert found["activations_bytes"] == pytest.approx(2 * 4096 * LLAMA.hidden * LLAMA.layers)


def test_a_fused_loss_needs_less_than_an_eager_one():
    eager = peak(profile="hf-trainer", loss=LossKernel.EAGER)
    assert peak(profile="hf-trainer", loss=LossKernel.FUSED) < eager - 4 * 4096 * LLAMA.vocab


def test_adapters_leave_no_gradient_of_the_base_and_quantising_shrinks_it():
    lora = causes(profile="axolotl", method=Method.LORA, dp=1)
    qlora = causes(profile="axolotl", method=Method.QLORA, dp=1)
    assert lora["gradients_bytes"] < 0.01 * lora["weights_bytes"]
    assert qlora["weights_bytes"] < 0.45 * lora["weights_bytes"]


def test_a_shard_group_shards_its_own_copy_of_the_experts():
    mixtral = {"architecture": lookup.model("Mixtral-8x7B"), "ep": 8, "sharding": Sharding.ZERO1}
    whole, half = causes(**mixtral, dp=16), causes(**mixtral, dp=16, shard_group=8)
    assert half["optimizer_bytes"] == pytest.approx(2 * whole["optimizer_bytes"])


def test_host_memory_holds_the_offloaded_states():
    assert causes(offload=Offload.OPTIMIZER)["optimizer_bytes"] == 0
    assert causes(offload=Offload.ACTIVATIONS)["activations_bytes"] == 0


def test_a_share_of_the_activations_can_stay():
    every, some = causes(), causes(offload=Offload.ACTIVATIONS, offload_percent=25)
    assert some["activations_bytes"] == pytest.approx(0.75 * every["activations_bytes"])


def test_columns_give_what_single_cases_give():
    rows = [case(tp=t, pp=p) for t in (1, 2, 4) for p in (1, 2, 4)]
    together = device_memory.estimate(Cases.stack(rows)).device_bytes
    alone = [float(device_memory.estimate(Cases.of(row)).device_bytes) for row in rows]
    assert together == pytest.approx(alone)


LAYOUTS = st.fixed_dictionaries(
    {
        "dp": st.sampled_from([1, 2, 8]),
        "tp": st.sampled_from([1, 2, 8]),
        "pp": st.sampled_from([1, 2, 4]),
        "micro_batch": st.sampled_from([1, 2, 4]),
        "micro_batches": st.sampled_from([1, 4, 16]),
        "sequence_tokens": st.sampled_from([1024, 4096, 32768]),
        "sharding": st.sampled_from(list(Sharding)),
        "recompute": st.sampled_from([Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL]),
        "profile": st.sampled_from(
            ["megatron-core", "torchtitan", "deepspeed-zero", "hf-trainer", "unknown"]
        ),
    }
)


@settings(max_examples=60, deadline=None)
@given(LAYOUTS)
def test_a_peak_holds_at_least_its_own_weights_and_optimizer(layout):
    found = causes(**layout)
    assert all(value >= 0 for value in found.values())
    assert peak(**layout) >= found["weights_bytes"] + found["optimizer_bytes"]


@settings(max_examples=60, deadline=None)
@given(LAYOUTS, st.sampled_from(["micro_batch", "sequence_tokens"]))
def test_more_tokens_never_take_less_memory(layout, what):
    more = layout | {what: layout[what] * 2}
    assert peak(**more) >= peak(**layout)


@settings(max_examples=40, deadline=None)
@given(LAYOUTS, st.integers(1, 3))
def test_more_layers_never_take_less_memory(layout, times):
    deeper = dataclasses.replace(LLAMA, layers=LLAMA.layers + 4 * times)
    assert peak(**layout, architecture=deeper) >= peak(**layout)


@settings(max_examples=40, deadline=None)
@given(LAYOUTS)
def test_tensor_parallelism_never_takes_more_memory_with_the_sequence_split(layout):
    split = layout | {"tp": layout["tp"] * 2, "sequence_parallel": True, "profile": "megatron-core"}
    whole = layout | {"sequence_parallel": layout["tp"] > 1, "profile": "megatron-core"}
    assert peak(**split) <= peak(**whole) * 1.001


@settings(max_examples=40, deadline=None)
@given(LAYOUTS)
def test_zero_stages_shard_more_and_more_of_the_states(layout):
    def states(stage):
        found = causes(**(layout | {"sharding": stage, "micro_batches": 4}))
        return found["weights_bytes"] + found["gradients_bytes"] + found["optimizer_bytes"]

    order = [states(stage) for stage in (Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)]
    assert order == sorted(order, reverse=True)


def test_a_peak_above_the_limit_never_fits_and_doubt_counts_against_it():
    found = device_memory.estimate(Cases.of(case(sharding=Sharding.ZERO1, recompute=Recompute.FULL)))
    room = found.device_bytes / device_memory.MEMORY_LIMIT
    assert not device_memory.fits(found, room * 0.99)
    assert device_memory.fits(found, room * 1.01)
    assert not device_memory.fits(found, room * 1.01, 0.2)


def test_every_kind_of_group_brings_a_communicator():
    one, two = (causes(tp=tp, dp=8)["context_bytes"] for tp in (1, 2))
    alone = causes(dp=1)["context_bytes"]
    assert two - one == pytest.approx(load_memory().communicator_bytes)
    assert one - alone == pytest.approx(load_memory().communicator_bytes)


@pytest.mark.parametrize(
    ("room", "verdict"),
    [
        (1.4, device_memory.Verdict.FITS),
        (1.0, device_memory.Verdict.TIGHT),
        (0.6, device_memory.Verdict.DOES_NOT_FIT),
    ],
    ids=["room to spare", "at the limit", "far too little"],
)
def test_only_impossible_layouts_do_not_fit(room, verdict):
    found = device_memory.estimate(Cases.of(case(pp=2, tp=2)))
    needed = float(found.allocated_bytes + found.context_bytes)
    assert device_memory.verdict(found, room * needed, 0.1) is verdict


@pytest.mark.parametrize(
    ("dp", "cp", "micro_batches", "sequence_tokens"),
    [(64, 1, 32, 8192), (128, 1, 16, 8192), (8, 16, 16, 131072)],
    ids=["8,192 GPUs", "16,384 GPUs", "context parallel"],
)
def test_llama3_405b_never_gets_does_not_fit(dp, cp, micro_batches, sequence_tokens):
    """arXiv:2407.21783, table 4; all three ran on H100s of 80 GB."""
    one = case(
        architecture=lookup.model("meta-llama/Llama-3.1-405B"),
        profile="unknown-parallel",
        sharding=Sharding.ZERO1,
        sequence_tokens=sequence_tokens,
        global_batch_sequences=dp * micro_batches,
        dp=dp,
        tp=8,
        pp=16,
        vpp=8,
        cp=cp,
        micro_batches=micro_batches,
        sequence_parallel=True,
    )
    cases = Cases.of(one)
    room, sigma = one.cluster.gpu.memory_bytes, float(memory_sigma(cases))
    assert (
        device_memory.verdict(device_memory.estimate(cases), room, sigma)
        is not device_memory.Verdict.DOES_NOT_FIT
    )


def test_a_predicted_layer_brings_its_experts_its_embedding_and_its_loss_to_the_last_stage():
    base = dataclasses.replace(
        lookup.model("DeepSeek-V3 671B"), layers=8, dense_layers=0, mtp_layers=0
    )  # arXiv:2412.19437, section 2.2
    ahead = dataclasses.replace(base, mtp_layers=1)
    last = {}
    for shape in (base, ahead):
        some = Cases.of(case(architecture=shape, pp=2, ep=8, sharding=Sharding.ZERO1))
        last[shape.mtp_layers] = device_memory.stage_memory(some, load_memory(), np.asarray(1))
    own = float(ahead.parameters_total - base.parameters_total) - 7 / 8 * 256 * 3 * 7168 * 2048
    more = float(last[1].weights_bytes - last[0].weights_bytes) / 2
    assert more == pytest.approx(own + base.vocab * base.hidden, rel=0.01)
    assert last[1].loss_bytes > 2 * last[0].loss_bytes


def test_deferred_gradients_of_the_head_wait_in_sixteen_bits():
    profile = dataclasses.replace(framework("megatron-core"), deferred_head_gradients=2)
    plain = case(tp=2, pp=2)
    waits = dataclasses.replace(plain, framework=profile)
    one, other = (
        device_memory.stage_memory(Cases.of(c), load_memory(), np.asarray(1)) for c in (plain, waits)
    )
    expected = 2 * 4096 * 2 * (LLAMA.vocab / 2 + LLAMA.hidden)
    assert float(other.loss_bytes - one.loss_bytes) == pytest.approx(expected)


def test_deepseek_s_stack_keeps_the_bytes_of_its_report():
    shape = dataclasses.replace(lookup.model("DeepSeek-V3 671B"), layers=4, dense_layers=0)
    found = causes(
        architecture=shape,
        profile="hai-llm",
        ep=8,
        precision=Precision.FP8,
        recompute=Recompute.SELECTIVE,
    )
    experts = load_memory().expert_imbalance * 8
    residuals, attention = 2 * 2 * 7168, 1.5 * 128 * 128 + 4 * 128  # E5M6 is 12 bits; log-sum-exp
    sent, swiglu = experts * 7168, 2 * (experts + 1) * 2048
    latents, router = 4 * (1536 + 512) + 2 * 64, 8 * 256
    expected = residuals + attention + sent + swiglu + latents + router  # arXiv:2412.19437, 3.2.3 and 3.3.3
    assert found["activations_bytes"] == pytest.approx(4 * 4096 * expected, rel=0.001)


def test_behind_leading_dense_layers_the_second_stage_may_be_the_fullest():
    shape = lookup.model("DeepSeek-V3 671B")
    some = Cases.of(case(architecture=shape, pp=16, ep=8, micro_batches=64))
    whole, second = (
        device_memory.estimate(some),
        device_memory.stage_memory(some, load_memory(), np.asarray(1)),
    )
    assert float(whole.device_bytes) == pytest.approx(float(second.device_bytes))


def test_deepspeed_s_pipeline_keeps_the_output_of_every_micro_batch_in_flight():
    layout = {"pp": 4, "micro_batches": 16, "recompute": Recompute.FULL}
    boundary = 2 * 4096 * LLAMA.hidden
    held = {}
    for profile in ("megatron-lm-2022", "megatron-deepspeed"):
        some = Cases.of(case(profile=profile, **layout))
        first = device_memory.stage_memory(some, load_memory(), np.asarray(0))
        held[profile] = float(first.activations_bytes) / boundary
    assert held == pytest.approx({"megatron-lm-2022": 4 * 8, "megatron-deepspeed": 4 * (8 + 1)})


@pytest.mark.parametrize(
    ("stage", "layers_in_flight"),
    [(0, 7 * 0 + 4 * 1), (3, 4 * 1 + 1 * 0)],
    ids=["the embedding's chunk has the most slots", "the head's chunk has one"],
)
def test_a_chunk_without_a_layer_holds_none_in_flight(stage, layers_in_flight):
    shape = dataclasses.replace(LLAMA, layers=6)  # and embedding and head: 8 chunks of one on 4 x 2
    layout = {"pp": 4, "vpp": 2, "micro_batches": 16}
    some = Cases.of(case(architecture=shape, **layout))
    whole = Cases.of(case(architecture=shape, pp=1, micro_batches=1))
    held = device_memory.stage_memory(some, load_memory(), np.asarray(stage))
    one = float(device_memory.estimate(whole).activations_bytes) / 6
    assert float(held.activations_bytes) == pytest.approx(layers_in_flight * one)


def test_more_chunks_fly_where_more_micro_batches_pass_a_chunk_before_the_next():
    layout = {"pp": 4, "vpp": 2, "micro_batches": 16}
    plain = case(**layout)
    wide = dataclasses.replace(plain, framework=dataclasses.replace(plain.framework, interleaved_group=5))
    held = [
        float(device_memory.stage_memory(Cases.of(c), load_memory(), np.asarray(3)).activations_bytes)
        for c in (plain, wide)
    ]
    assert held[1] / held[0] == pytest.approx((5 + 1) / (4 + 1))


def test_where_ends_count_as_layers_the_second_stage_may_be_the_fullest():
    some = Cases.of(case(architecture=lookup.model("Llama-3.1-405B"), tp=8, pp=16, micro_batches=64))
    whole, second = (
        device_memory.estimate(some),
        device_memory.stage_memory(some, load_memory(), np.asarray(1)),
    )
    assert float(whole.device_bytes) == pytest.approx(float(second.device_bytes))


def test_a_run_may_state_the_layers_of_its_end_stages():
    shape = dataclasses.replace(LLAMA, layers=12)
    profile = dataclasses.replace(framework("megatron-core"), first_stage_layers=2, last_stage_layers=3)
    uneven = dataclasses.replace(
        case(architecture=shape, pp=4, micro_batches=1, recompute=Recompute.FULL), framework=profile
    )
    held = [device_memory.stage_memory(Cases.of(uneven), load_memory(), np.asarray(i)) for i in (0, 1, 3)]
    boundary = 2 * 4096 * LLAMA.hidden
    assert [float(h.activations_bytes) / boundary for h in held] == pytest.approx([2, 4, 3])


@pytest.mark.parametrize(("pp", "stages"), [(1, [0]), (2, [0, 1]), (3, [0, 2, 1]), (4, [0, 3, 1])])
def test_the_first_the_last_and_with_light_ends_the_second_stage_may_be_the_fullest(pp, stages):
    found = device_memory.candidates(Cases.of(case(profile="torchtitan", pp=pp)))
    assert [int(index) for index in found] == stages


def test_a_peak_at_the_limit_fits():
    at = device_memory.Peak(
        allocated_bytes=np.asarray(90.0), slack_bytes=np.asarray(0.0), context_bytes=np.asarray(6.0)
    )
    assert device_memory.fits(at, np.asarray(100.0))
    assert not device_memory.fits(at, np.asarray(99.9))
    assert not device_memory.fits(dataclasses.replace(at, slack_bytes=np.asarray(0.1)), np.asarray(100.0))


@pytest.mark.parametrize(("year", "held"), [(2024.0, True), (2026.0, False), (0.0, False)])
def test_transformers_optimizer_holds_copies_of_the_weights_until_it_is_fused(year, held):
    work = {"profile": "hf-trainer", "dp": 1, "recompute": Recompute.FULL, "library_year": year}
    assert (causes(**work)["temporaries_bytes"] > 0) is held
