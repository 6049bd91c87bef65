"""Each framework's own parser reads what we emit; skipped where the framework is not installed."""

import dataclasses
import json

import pytest

from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import Recompute, Workload
from rightsizer_launch.argv import frameworks

pytestmark = [pytest.mark.torchrun, pytest.mark.filterwarnings("default")]  # their imports warn at will

MODEL = Architecture(
    name="m", layers=32, hidden=64, ffn_hidden=256, heads=4, kv_heads=4, head_dim=16, vocab=256
)
WORKLOAD = Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=256)
FSDP = Layout(dp=16, tp=4, micro_batch=2, micro_batches=8, sharding=Sharding.ZERO3)
THREE_D = Layout(dp=4, tp=8, pp=4, vpp=2, micro_batches=64, sharding=Sharding.ZERO1, recompute=Recompute.FULL)


def emitted(name: str, layout: Layout) -> list[str]:
    return list(frameworks.flags(name, layout, WORKLOAD, architecture=MODEL).arguments)


def names(words: list[str]) -> list[str]:
    return [word[2:] for word in words if word.startswith("--")]


def test_torchtitans_own_dataclasses_have_every_field():
    configs = pytest.importorskip("torchtitan.config.configs", reason="torchtitan is not installed")
    sections = {"training": configs.TrainingConfig, "parallelism": configs.ParallelismConfig}
    known = {f"{name}.{f.name}" for name, kind in sections.items() for f in dataclasses.fields(kind)}
    assert set(names(emitted("torchtitan", FSDP) + emitted("torchtitan", THREE_D))) <= known


def test_torchtitans_own_command_line_reads_it():
    trainer = pytest.importorskip("torchtitan.trainer", reason="torchtitan is not installed")
    tyro = pytest.importorskip("tyro", reason="torchtitan is not installed")
    parsed = tyro.cli(trainer.Trainer.Config, args=emitted("torchtitan", THREE_D))
    assert parsed.parallelism.pipeline_parallel_schedule == "Interleaved1F1B"
    assert type(parsed.activation_checkpoint).__qualname__ == "FullAC.Config"


def test_megatrons_own_config_classes_have_every_parallelism_field():
    parallel = pytest.importorskip(
        "megatron.core.model_parallel_config", reason="megatron-core is not installed"
    )
    transformer = pytest.importorskip("megatron.core.transformer.transformer_config")
    kinds = (parallel.ModelParallelConfig, transformer.TransformerConfig)
    known = {f.name for kind in kinds for f in dataclasses.fields(kind)}
    given = {name.replace("-", "_") for name in names(emitted("megatron", THREE_D))}
    assert {name for name in given if name.endswith("parallel_size") or name.startswith("recompute")} <= known


def test_deepspeeds_own_config_reads_it():
    zero = pytest.importorskip("deepspeed.runtime.zero.config", reason="deepspeed is not installed")
    layout = dataclasses.replace(FSDP, tp=1, sharding=Sharding.HSDP, shard_group=8, offload=Offload.OPTIMIZER)
    config = json.loads(frameworks.flags("deepspeed", layout, WORKLOAD).files["deepspeed.json"])
    read = zero.get_zero_config(config)
    assert (int(read.stage), read.zero_hpz_partition_size) == (3, 8)
    assert "cpu" in str(read.offload_optimizer.device)


def test_accelerates_own_launcher_would_export_the_same():
    launch = pytest.importorskip("accelerate.commands.launch", reason="accelerate is not installed")
    exported = pytest.importorskip("accelerate.utils.launch").prepare_multi_gpu_env
    argv = (
        "--mixed_precision bf16 --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP "
        "--fsdp_state_dict_type SHARDED_STATE_DICT --use_parallelism_config "
        "--num_processes 64 --num_machines 1 --dynamo_backend no "
        "--parallelism_config_dp_shard_size 16 --parallelism_config_tp_size 4 train.py"
    )
    theirs = exported(launch.launch_command_parser().parse_args(argv.split()))
    ours = frameworks.flags("accelerate", FSDP, WORKLOAD).environment
    shared = set(ours) & set(theirs)
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
    rightsizers = {name for name in ours if name.startswith("RIGHTSIZER_")}
    assert set(ours) - shared - rightsizers == {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS"}
