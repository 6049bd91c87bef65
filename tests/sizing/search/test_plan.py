import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.domain.workload import Method, Precision, Workload
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.memory.device_memory import MEMORY_LIMIT
from rightsizer_engine.estimate.uncertainty import quantile
from rightsizer_engine.search.pricing.context import _cluster_tables
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Binding, NoPlan, Objective, Plan, Request

DAY = 86400.0
BINDINGS = {value for name, value in vars(Binding).items() if name.isupper()}


def _request(
    model="meta-llama/Llama-3.1-8B",
    tokens=100e9,
    days: float | None = 3.0,
    *,
    gpus=("H100",),
    name="torchtitan",
    sequence=8192,
    batch=512,
    method=Method.PRETRAIN,
    precision=Precision.BF16,
    **changes,
):
    return Request(
        architecture=lookup.model(model),
        workload=Workload(
            tokens=tokens,
            sequence_tokens=sequence,
            global_batch_sequences=batch,
            method=method,
            precision=precision,
        ),
        framework=framework(name),
        clusters=tuple(lookup.cluster(gpu) for gpu in gpus),
        deadline_s=None if days is None else days * DAY,
        **({"max_gpus": 256} | changes),
    )


def _planned(*args, **kwargs) -> Plan:
    answer = size(_request(*args, **kwargs))
    assert isinstance(answer, Plan), answer
    return answer


def test_llama_8b_in_three_days_takes_some_fifty_h100():
    answer = _planned(elastic=True)
    assert 40 <= answer.option.gpus <= 72
    assert answer.option.finish_s <= 3 * DAY < answer.option.finish_at_confidence_s
    assert answer.option.layout.sharding == Sharding.ZERO3
    assert answer.binding == Binding.DEADLINE


def test_llama2_70b_in_sixty_days_takes_some_hundreds_of_h100():
    """4.3e23 FLOP at an MFU of 49 % are 171 GPUs for 60 days; what large runs lose comes on top."""
    model = "meta-llama/Llama-2-70b-hf"
    answer = _planned(
        model, 1e12, 60, name="megatron", sequence=4096, batch=1024, max_gpus=1024, elastic=True
    )
    assert 171 <= answer.option.gpus <= 320


def test_deepseek_v3_takes_the_scale_it_took():
    """arXiv:2412.19437: 2,048 H800 for about 54 days in fp8."""
    answer = _planned(
        "deepseek-ai/DeepSeek-V3",
        14.8e12,
        60,
        gpus=("H800",),
        name="megatron",
        sequence=4096,
        batch=15360,
        precision=Precision.FP8,
        max_gpus=8192,
        elastic=True,
    )
    assert 1400 <= answer.option.gpus <= 4096


def test_qlora_of_70b_fits_24_gib_cards():
    answer = _planned(
        "meta-llama/Llama-2-70b-hf",
        50e6,
        3,
        gpus=("RTX 4090",),
        name="accelerate",
        sequence=2048,
        batch=16,
        method=Method.QLORA,
    )
    assert answer.option.gpus <= 16


@pytest.mark.parametrize("name", ["accelerate", "peft", "deepspeed", "custom"])
def test_quantised_weights_never_lie_in_host_memory(name):
    asked = _request(
        "meta-llama/Llama-2-70b-hf",
        50e6,
        None,
        gpus=("RTX 4090",),
        name=name,
        sequence=2048,
        batch=16,
        method=Method.QLORA,
        gpu_counts=(1,),
    )
    answer = size(asked)
    assert isinstance(answer, NoPlan)
    assert answer.binding in {Binding.MEMORY, Binding.FRAMEWORK}


def test_sixteen_bit_moments_are_noted():
    answer = _planned("meta-llama/Llama-2-7b-hf", 1e9, name="accelerate", method=Method.FINETUNE)
    assert any("moments in 16 bits" in reason for reason in answer.reasons)
    assert not any("16 bits" in reason for reason in _planned().reasons)


def test_whisper_large_is_planned():
    assert _planned("openai/whisper-large-v3", 1e9, 7, name="ddp", sequence=448, batch=256).option.gpus >= 1


def test_too_few_gpus_state_the_needed_number():
    answer = size(_request(max_gpus=16))
    assert isinstance(answer, NoPlan)
    assert answer.binding == Binding.MAX_GPUS
    assert answer.needs_gpus is not None
    assert answer.needs_gpus > 16
    assert f"needs {answer.needs_gpus} GPUs" in answer.reason
    assert "late" in answer.reason


def test_the_number_of_gpus_in_a_refusal_is_enough():
    refused = size(_request(max_gpus=16))
    assert isinstance(refused, NoPlan)
    assert _planned(max_gpus=refused.needs_gpus).option.gpus == refused.needs_gpus


IMPOSSIBLE = {
    "memory": (_request("meta-llama/Llama-3.1-405B", name="ddp"), Binding.MEMORY),
    "budget": (_request(max_usd=100.0), Binding.BUDGET),
    "method": (_request(name="megatron", method=Method.QLORA), Binding.FRAMEWORK),
    "pinned": (_request(pinned={"tp": 3}), Binding.LAYOUT),
    "no gpus": (_request(min_gpus=64, max_gpus=32), Binding.MAX_GPUS),
    "batch of one": (
        _request("gpt2", batch=1, min_gpus=8, name="ddp", sequence=1024, days=300),
        Binding.BATCH,
    ),
    "fp8 on A100": (_request(gpus=("A100",), precision=Precision.FP8), Binding.PRECISION),
    "bf16 on V100": (_request(gpus=("V100",)), Binding.PRECISION),
    "one second": (_request(days=1 / DAY), Binding.DEADLINE),
}


@pytest.mark.parametrize(("request_", "binding"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_request_names_its_constraint(request_, binding):
    answer = size(request_)
    assert isinstance(answer, NoPlan)
    assert answer.binding == binding
    assert len(answer.reason) > 20


WRONG = {
    "no gpu type": {"clusters": ()},
    "certainty": {"confidence": 1.0},
    "past": {"deadline_s": -1.0},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_meaningless_request_is_refused(change):
    with pytest.raises(InputError):
        size(replace(_request(), **change))


def test_of_several_gpu_types_the_cheapest_wins():
    answer = _planned(gpus=("A100-SXM4-80GB", "H100"))
    (other,) = [o for o in answer.runners_up if o.cluster.gpu.name != answer.option.cluster.gpu.name]
    assert answer.option.cost_usd <= other.cost_usd


def test_gpu_types_that_lack_the_precision_are_passed_over():
    answer = _planned(gpus=("A100", "H100"), precision=Precision.FP8)
    assert answer.option.cluster.gpu.name == "H100-SXM5-80GB"


def test_without_a_deadline_the_fewest_that_fit_are_taken_with_a_note():
    answer = _planned(days=None, max_gpus=64)
    assert answer.binding == Binding.MEMORY
    assert answer.option.gpus < 8
    assert "no deadline" in answer.reasons[0]


@pytest.mark.parametrize("days", [None, 20.0], ids=["no deadline", "deadline"])
@pytest.mark.parametrize("objective", [Objective.GPUS, Objective.COST])
def test_a_gpu_type_without_a_price_does_not_win_over_one_with_a_price(objective, days):
    asked = _request(days=days, gpus=("A100", "H100"), objective=objective)
    unpriced = replace(lookup.gpu("H100"), price_usd_per_gpu_h=None)
    clusters = tuple(
        replace(c, gpu=unpriced, price_usd_per_gpu_h=None) if c.gpu.name == unpriced.name else c
        for c in asked.clusters
    )
    answer = size(replace(asked, clusters=clusters))
    assert answer.option.cluster.gpu.name == "A100-SXM4-80GB"
    assert "no price is known for H100-SXM5-80GB: not compared by cost" in answer.reasons[0]
    assert answer.runners_up[0].cost_usd is None


def test_gpu_types_without_prices_are_compared_by_gpu_hours_with_a_reason():
    asked = _request(days=None, gpus=("A100", "H100"), objective=Objective.COST)
    bare = (
        replace(c, gpu=replace(c.gpu, price_usd_per_gpu_h=None), price_usd_per_gpu_h=None)
        for c in asked.clusters
    )
    answer = size(replace(asked, clusters=tuple(bare)))
    (other,) = (o for o in answer.runners_up if o.cluster.gpu.name != answer.option.cluster.gpu.name)
    assert answer.option.gpus * answer.option.finish_s < other.gpus * other.finish_s
    assert "no price is known: GPU types are compared by GPU-hours" in answer.reasons[0]


def test_a_pinned_layout_is_kept():
    layout = _planned(pinned={"tp": 4, "micro_batch": 2}).option.layout
    assert (layout.tp, layout.micro_batch) == (4, 2)


def test_one_gpu_is_a_plan():
    answer = _planned("gpt2", 1e8, 5, name="ddp", sequence=1024, batch=32, max_gpus=1)
    assert answer.option.gpus == 1
    assert answer.option.layout.dp == 1


def test_the_curve_passes_through_the_plan():
    answer = _planned()
    point = next(p for p in answer.curve if p.gpus == answer.option.gpus)
    assert point.finish_s == pytest.approx(answer.option.finish_s, rel=0.021)


def test_the_curve_falls_and_holds_the_sizes_of_the_staging():
    answer = _planned(elastic=True)
    staging, sizes = answer.staging, [point.gpus for point in answer.curve]
    assert {staging.likely_gpus, staging.reserve_gpus} <= set(sizes)
    others = [point.finish_s for point in answer.curve if point.gpus != answer.option.gpus]
    assert others == sorted(others, reverse=True)


def test_causes_sum_to_their_totals():
    option = _planned().option
    assert sum(option.step_by_cause_s.values()) == pytest.approx(option.step_s)
    assert sum(option.memory_by_cause_bytes.values()) == pytest.approx(option.device_bytes)
    assert option.goodput + sum(option.lost_by_cause.values()) == pytest.approx(1)


models = st.sampled_from(
    ["gpt2", "meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1", "google-bert/bert-large-uncased"]
)
requests = st.builds(
    _request,
    models,
    st.floats(1e7, 1e12),
    st.one_of(st.none(), st.floats(0.05, 200)),
    gpus=st.sampled_from([("H100",), ("A100-SXM4-40GB",), ("RTX 4090",)]),
    name=st.sampled_from(["torchtitan", "megatron", "deepspeed", "ddp", "accelerate", "custom"]),
    sequence=st.sampled_from([1, 100, 512, 2048, 4097]),
    batch=st.integers(1, 300),
    method=st.sampled_from([Method.PRETRAIN, Method.FINETUNE, Method.LORA, Method.QLORA]),
    max_gpus=st.integers(1, 48),
)
SETTINGS = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(request_=requests)
def test_every_answer_is_physical(request_):
    answer = size(request_)
    if isinstance(answer, NoPlan):
        assert answer.binding in BINDINGS
        assert answer.reason
        return
    option = answer.option
    assert 0 < option.mfu <= 1
    assert option.device_bytes <= MEMORY_LIMIT * option.cluster.gpu.memory_bytes
    assert option.finish_lo_s <= option.finish_s <= option.finish_hi_s
    assert option.finish_s <= option.finish_at_confidence_s <= (request_.deadline_s or float("inf"))
    assert option.gpus == option.layout.gpus <= request_.max_gpus


@SETTINGS
@given(request_=requests)
def test_more_gpus_allowed_never_make_it_worse(request_):
    fewer, more = (
        size(replace(request_, deadline_s=20 * DAY)),
        size(replace(request_, deadline_s=20 * DAY, max_gpus=2 * request_.max_gpus)),
    )
    if isinstance(fewer, Plan):
        assert isinstance(more, Plan)
        assert more.option.gpus == fewer.option.gpus


@SETTINGS
@given(request_=requests, days=st.floats(0.5, 100))
def test_a_tighter_deadline_never_takes_fewer_gpus(request_, days):
    loose = size(replace(request_, deadline_s=days * DAY))
    tight = size(replace(request_, deadline_s=days * DAY * 0.6))
    if isinstance(tight, Plan):
        assert isinstance(loose, Plan)
        assert tight.option.gpus >= loose.option.gpus


def test_a_single_plan_has_the_same_option_from_warm_and_cold_tables() -> None:
    asked = [_request(days=days) for days in (3.0, 6.0, 3.0)]
    compared, again = [size(one) for one in asked], [size(one, compared=False) for one in asked]
    assert [one.option for one in compared] == [one.option for one in again]
    assert [one.binding for one in compared] == [one.binding for one in again]
    assert again[0].runners_up == ()


@pytest.mark.parametrize("most", [16, 64, 256])
def test_cached_tables_of_a_model_change_no_result(most):
    some, other = (_request(days=days, max_gpus=most) for days in (40, 90))
    _cluster_tables.cache_clear()
    fresh = size(other)
    _cluster_tables.cache_clear()
    size(some)
    again, alone = size(other), size(other, compared=False)
    assert again == fresh
    assert alone.option == fresh.option


@pytest.mark.parametrize("confidence", [0.6, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("elastic", [False, True])
def test_the_printed_interval_and_the_requested_confidence_are_one_distribution(confidence, elastic):
    option = _planned(confidence=confidence, elastic=elastic).option
    z = math.log(option.finish_at_confidence_s / option.finish_s) / quantile(confidence)
    assert math.log(option.finish_hi_s / option.finish_s) == pytest.approx(z * quantile(0.9))
    assert math.log(option.finish_s / option.finish_lo_s) == pytest.approx(z * quantile(0.9))
    if confidence == 0.9:
        assert option.finish_hi_s == pytest.approx(option.finish_at_confidence_s)


def test_an_elastic_job_opens_with_fewer_gpus_than_a_fixed_one_and_states_both():
    elastic, fixed = _planned(elastic=True), _planned()
    assert elastic.staging is not None
    assert fixed.staging is None
    assert elastic.option.gpus < fixed.option.gpus == elastic.staging.static_gpus
    assert elastic.option.gpus < elastic.staging.reserve_gpus <= 256
    assert elastic.staging.probability >= 0.9


def test_an_elastic_job_without_room_to_grow_is_sized_as_a_fixed_one():
    fixed = _planned()
    capped = _planned(elastic=True, max_gpus=fixed.option.gpus, days=3.0)
    assert capped.option.gpus <= fixed.option.gpus
    assert isinstance(size(_request(elastic=True, max_gpus=48)), NoPlan)


def test_an_elastic_job_keeps_no_reserve_that_it_may_not_take():
    answer = _planned(elastic=True, grow_to=96)
    assert answer.option.gpus <= 96
    assert answer.staging is None or answer.staging.reserve_gpus <= 96


def test_deepseek_v3_s_published_layout_takes_its_published_step_and_fits():
    asked = _request(
        "DeepSeek-V3 671B",
        14.8e12,
        None,
        gpus=("H800",),
        name="hai-llm",
        sequence=4096,
        batch=15_360,
        precision=Precision.FP8,
        max_gpus=2048,
        gpu_counts=(2048,),
        pinned={"tp": 1, "pp": 16, "ep": 64},
    )
    option = size(asked, compared=False).option
    assert option.step_s == pytest.approx(19.9, rel=0.08)  # 180K H800-hours a 1T tokens: arXiv:2412.19437
    assert option.device_bytes < 70 * 2**30
