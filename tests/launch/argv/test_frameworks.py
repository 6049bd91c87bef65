import dataclasses
import json

import pytest

from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import Precision, Recompute, Workload
from rightsizer_engine.errors import InputError, UnsupportedError
from rightsizer_launch.argv import frameworks

MODEL = Architecture(
    name="m", layers=32, hidden=64, ffn_hidden=256, heads=4, kv_heads=4, head_dim=16, vocab=256
)
WORKLOAD = Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=256)
FSDP = Layout(
    dp=16, tp=4, micro_batch=2, micro_batches=8, sharding=Sharding.ZERO3, recompute=Recompute.SELECTIVE
)
THREE_D = Layout(
    dp=4,
    tp=8,
    pp=4,
    vpp=2,
    micro_batches=64,
    sharding=Sharding.ZERO1,
    sequence_parallel=True,
    recompute=Recompute.FULL,
)


def options(flags: frameworks.FrameworkFlags) -> dict[str, str]:
    words = [word for word in flags.arguments if not word.startswith("activation-checkpoint")]
    pairs: dict[str, str] = {}
    for here, after in zip(words, [*words[1:], "--"], strict=True):
        if here.startswith("--"):
            pairs[here[2:]] = "" if after.startswith("--") else after
    return pairs


@pytest.mark.parametrize(
    "name", ["torchtitan", "megatron-lm", "deepspeed", "transformers", "trl", "ddp", "fsdp", "custom"]
)
def test_every_framework_gets_the_layout_for_the_agent(name):
    plain = Layout(dp=8, micro_batch=4, micro_batches=8)
    environment = frameworks.flags(name, plain, WORKLOAD).environment
    assert (environment["RIGHTSIZER_LAYOUT_DP"], environment["RIGHTSIZER_LAYOUT_MICRO_BATCH"]) == ("8", "4")


def test_a_framework_that_is_sized_only_is_refused_with_the_remedy():
    with pytest.raises(InputError, match=r"'nemo': is sized only: .*\{layout.tp\}"):
        frameworks.flags("nemo", FSDP, WORKLOAD)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("ddp", FSDP),
        ("accelerate", THREE_D),
        ("deepspeed", dataclasses.replace(FSDP, cp=2)),
        ("megatron", dataclasses.replace(FSDP, offload=Offload.PARAMETERS)),
    ],
    ids=["ddp with tp", "accelerate with pipelines", "deepspeed with cp", "megatron with offloaded weights"],
)
def test_a_layout_that_a_framework_cannot_run_is_refused(name, layout):
    with pytest.raises(UnsupportedError):
        frameworks.flags(name, layout, WORKLOAD)


@pytest.mark.parametrize(
    ("layout", "tensor", "experts"),
    [
        (THREE_D, True, False),
        (dataclasses.replace(THREE_D, ep=4, recompute=Recompute.NONE), True, True),
        (dataclasses.replace(THREE_D, ep=4, vpp=1, recompute=Recompute.NONE), True, False),
        (Layout(dp=8, ep=8, micro_batches=8), False, True),
    ],
    ids=["dense", "interleaved experts", "plain stages", "no stages"],
)
def test_megatron_hides_what_the_engine_counts_as_hidden(layout, tensor, experts):
    given = options(frameworks.flags("megatron", layout, WORKLOAD, architecture=MODEL))
    assert ("tp-comm-overlap" in given) is tensor
    assert ("overlap-moe-expert-parallel-comm" in given) is experts


@pytest.mark.parametrize(
    ("precision", "gated", "kept"), [("fp8", True, True), ("fp8", False, False), ("bf16", True, False)]
)
def test_megatron_keeps_swiglus_inputs_in_8_bits_where_the_matmuls_are(precision, gated, kept):
    workload = dataclasses.replace(WORKLOAD, precision=Precision(precision))
    model = dataclasses.replace(MODEL, gated_mlp=gated)
    given = options(frameworks.flags("megatron", THREE_D, workload, architecture=model))
    assert ("activation-func-fp8-input-store" in given) is kept


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "stages"),
    [
        (8, 4, 2, None),
        (8, 1, 1, None),
        (7, 4, 1, "Ett|tt|tt|tL"),
        (6, 4, 1, "Et|tt|tt|tL"),
        (9, 2, 4, "Ett|t|t|t|t|t|t|tL"),
    ],
    ids=["equal", "one stage", "short last stage", "ends count", "interleaved"],
)
def test_megatron_gets_unequal_stages_layer_by_layer(layers, pp, vpp, stages):
    layout = Layout(dp=2, pp=pp, vpp=vpp, micro_batches=8)
    model = dataclasses.replace(MODEL, layers=layers)
    given = options(frameworks.flags("megatron", layout, WORKLOAD, architecture=model))
    assert given.get("pipeline-model-parallel-layout") == stages
    assert ("num-virtual-stages-per-pipeline-rank" in given) is (vpp > 1 and stages is None)


def test_deepspeeds_batch_is_the_product_of_its_parts():
    config = json.loads(frameworks.flags("deepspeed", FSDP, WORKLOAD).files["deepspeed.json"])
    assert config["train_batch_size"] == 2 * 8 * 16


def test_torchtitan_gets_all_micro_batches_of_a_pipeline_as_its_local_batch():
    given = options(frameworks.flags("torchtitan", THREE_D, WORKLOAD, architecture=MODEL))
    assert given["training.local_batch_size"] == "64"
    assert given["parallelism.pipeline_parallel_layers_per_stage"] == "4"
