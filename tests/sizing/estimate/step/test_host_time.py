"""Host seconds of a layer's forward pass, counted by its launches."""

import dataclasses

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.workload import Method, Workload
from rightsizer_engine.estimate.parameters import load_step_time
from rightsizer_engine.estimate.step.host_time import launches_s

TIMES = load_step_time().replace(
    host_layer_s_core=0.1,
    host_layer_s_trainer=0.2,
    host_layer_s_fsdp2=0.3,
    host_backward=2.0,
    host_adapter_s=0.04,
    host_quantised_s=0.05,
    host_hook_s=0.03,
    host_tensor_growth=0.0,
)


def seconds(profile, *, sharding=Sharding.NONE, **work):
    case = Case(
        architecture=lookup.model("Llama-3-8B"),
        workload=Workload(tokens=1e9, sequence_tokens=2048, global_batch_sequences=64, **work),
        cluster=lookup.cluster("H100-SXM5-80GB"),
        framework=framework(profile),
        layout=Layout(dp=8, sharding=sharding),
    )
    return launches_s(Cases.of(case), TIMES, 0.0)


@pytest.mark.parametrize(
    ("profile", "changes", "forward"),
    [
        ("hf-trainer", {}, 0.2),
        ("deepspeed-zero", {"sharding": Sharding.ZERO3}, 0.2 + 9 * 0.03),
        ("hf-trainer", {"sharding": Sharding.ZERO3}, 0.2),
        ("peft", {"method": Method.LORA}, 0.2 + 4 * 0.04),
        ("deepspeed-zero", {"method": Method.LORA, "sharding": Sharding.ZERO3}, 0.2 + 4 * 0.04 + 17 * 0.03),
        ("peft", {"method": Method.QLORA, "lora_targets": "all"}, 0.2 + 7 * 0.04 + 7 * 0.05),
        ("megatron-core", {"method": Method.LORA}, 0.1),
        ("unsloth", {"method": Method.QLORA, "lora_targets": "all"}, 0.3 + 7 * 0.05),
    ],
    ids=[
        "a trainer", "DeepSpeed's hooks", "no hooks under FSDP", "adapters", "hooks of adapters",
        "quantised", "fused adapters", "fused adapters, unpacked weights",
    ],
)  # fmt: skip
def test_the_host_launches_what_the_framework_runs_module_by_module(profile, changes, forward):
    once, back = seconds(profile, **changes)
    assert float(once) == pytest.approx(forward)
    assert float(back) == pytest.approx(2 * forward)


def test_a_gpt_s_plain_mlp_has_one_matrix_less():
    gpt = dataclasses.replace(lookup.model("Llama-3-8B"), gated_mlp=False)
    case = Case(
        architecture=gpt,
        workload=Workload(tokens=1e9, sequence_tokens=2048, global_batch_sequences=64, method=Method.QLORA),
        cluster=lookup.cluster("H100-SXM5-80GB"),
        framework=framework("peft"),
        layout=Layout(dp=8),
    )
    assert float(launches_s(Cases.of(case), TIMES, 0.0)[0]) == pytest.approx(0.2 + 4 * 0.04 + 6 * 0.05)
