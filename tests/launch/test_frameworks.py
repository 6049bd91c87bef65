import dataclasses
import json

import pytest

from rightsizer.domain.architecture import Architecture
from rightsizer.domain.layout import Layout, Offload, Sharding
from rightsizer.domain.workload import Recompute, Workload
from rightsizer.errors import InputError, UnsupportedError
from rightsizer_launch import frameworks

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


def options(flags: frameworks.Flags) -> dict[str, str]:
    words = [word for word in flags.arguments if not word.startswith("activation-checkpoint")]
    pairs: dict[str, str] = {}
    for here, after in zip(words, [*words[1:], "--"], strict=True):
        if here.startswith("--"):
            pairs[here[2:]] = "" if after.startswith("--") else after
    return pairs


@pytest.mark.parametrize("name", frameworks.FRAMEWORKS)
def test_every_framework_gets_the_layout_for_the_agent(name):
    plain = Layout(dp=8, micro_batch=4, micro_batches=8)
    environment = frameworks.flags(name, plain, WORKLOAD).environment
    assert (environment["RIGHTSIZER_LAYOUT_DP"], environment["RIGHTSIZER_LAYOUT_MICRO_BATCH"]) == ("8", "4")


def test_an_unknown_framework_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="torchtitan"):
        frameworks.flags("jax", FSDP, WORKLOAD)


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


def test_deepspeeds_batch_is_the_product_of_its_parts():
    config = json.loads(frameworks.flags("deepspeed", FSDP, WORKLOAD).files["deepspeed.json"])
    assert config["train_batch_size"] == 2 * 8 * 16


def test_torchtitan_gets_all_micro_batches_of_a_pipeline_as_its_local_batch():
    given = options(frameworks.flags("torchtitan", THREE_D, WORKLOAD, architecture=MODEL))
    assert given["training.local_batch_size"] == "64"
    assert given["parallelism.pipeline_parallel_layers_per_stage"] == "4"
