from dataclasses import replace

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Precision, Workload
from rightsizer_engine.search.reasons import opening_text
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan, Request

DAY = 86400.0
DEEPSEEK_V3 = Request(
    architecture=lookup.model("deepseek-ai/DeepSeek-V3"),
    workload=Workload(
        tokens=14.8e12, sequence_tokens=4096, global_batch_sequences=15360, precision=Precision.FP8
    ),
    framework=framework("megatron"),
    clusters=(lookup.cluster("H800"),),
    deadline_s=60 * DAY,
    elastic=True,
)
SHORT = Request(
    architecture=lookup.model("meta-llama/Llama-3.1-8B"),
    workload=Workload(tokens=10e9, sequence_tokens=8192, global_batch_sequences=512),
    framework=framework("torchtitan"),
    clusters=(lookup.cluster("H100"),),
    deadline_s=0.25 * DAY,
)


def _planned(request: Request) -> Plan:
    answer = size(request)
    assert isinstance(answer, Plan), answer
    return answer


def test_a_cap_limits_the_reserve_and_not_the_opening():
    free = _planned(DEEPSEEK_V3)
    assert free.staging is not None
    capped = _planned(replace(DEEPSEEK_V3, max_gpus=free.staging.static_gpus))
    assert capped.staging is not None
    assert capped.option.gpus == free.option.gpus
    assert capped.staging.capped
    assert not free.staging.capped
    assert capped.staging.reserve_gpus == free.staging.static_gpus
    assert 0.88 <= capped.staging.probability < 0.9 < free.staging.probability
    assert "limited by the GPUs allowed" in opening_text(capped.option, capped.staging)


def test_a_cap_that_costs_too_much_confidence_fixes_the_size_with_a_note():
    fixed = _planned(SHORT)
    answer = _planned(replace(SHORT, max_gpus=fixed.option.gpus, elastic=True))
    assert answer.staging is None
    assert answer.option.gpus == fixed.option.gpus
    assert "the size is fixed: opened with" in answer.reasons[0]
