"""Flags and manifests are one."""

import dataclasses
from pathlib import Path

import pytest

from rightsizer_api import dump
from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags
from rightsizer_cli.requests.inputs import document_of, read, read_over
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.errors import InputError

JOB = JobFlags(model="gpt2", tokens="1B", global_batch="512k", precision="fp16", lora_rank=None)
GOAL = GoalFlags(deadline="3d", budget="$5k", max_gpus=16, confidence=0.8)
HARDWARE = HardwareFlags(gpu=["A100-SXM4-40GB", "H100"], inter_node_gbps=25.0, price="$2")


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


def test_flags_and_the_manifest_they_make_ask_the_same(tmp_path):
    plan, request = read(None, JOB, GOAL, HARDWARE)
    again, same = read(written(tmp_path, dump(plan)))
    assert again == plan
    assert same == request


def test_flags_reach_the_engine():
    _, request = read(None, JOB, GOAL, HARDWARE)
    assert request.deadline_s == 3 * 86400
    assert request.confidence == 0.8
    assert request.max_usd == 5000
    assert [c.gpu.name for c in request.clusters] == ["A100-SXM4-40GB", "H100-SXM5-80GB"]
    assert {c.price_usd_per_gpu_h for c in request.clusters} == {2.0}
    assert {c.inter_bytes_per_s for c in request.clusters} == {25e9}


def test_flags_win_over_the_manifest_and_leave_the_rest(tmp_path):
    file = written(tmp_path, dump(read(None, JOB, GOAL, HARDWARE)[0]))
    _, request = read(
        file, JobFlags(tokens="2B"), GoalFlags(finish_by="2099-01-01T00:00:00Z"), HardwareFlags()
    )
    assert request.workload.tokens == 2e9
    assert request.deadline_s > 86400 * 365
    assert request.confidence == 0.8


def test_an_error_names_the_flag_only_where_a_flag_was_given(tmp_path):
    plan, _ = read(None, JOB, GOAL, HARDWARE)
    file = written(tmp_path, dump(plan).replace("1B", "1 parsec"))
    with pytest.raises(InputError, match=r"^spec\.workload\.tokens: '1 parsec'"):
        read(file, JobFlags(), GOAL)
    with pytest.raises(InputError, match=r"^--tokens: '2 parsecs'"):
        read(None, JobFlags(model="gpt2", tokens="2 parsecs"), HARDWARE)


def test_a_config_beside_the_flags_is_a_model(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
        ' "intermediate_size": 256, "vocab_size": 1000}'
    )
    plan, request = read(None, JobFlags(config=config, tokens="1M"), HARDWARE)
    assert request.architecture.layers == 2
    assert plan.spec.model.config is not None


def test_a_given_field_drops_its_rivals():
    beneath = {"spec": {"model": {"config": {}}, "deadline": {"finishBy": "x", "confidence": 0.7}}}
    made = document_of(beneath, {"model.name": "gpt2", "deadline.finishWithin": "3d"})
    assert made["spec"] == {"model": {"name": "gpt2"}, "deadline": {"finishWithin": "3d", "confidence": 0.7}}


def test_the_underlying_manifest_is_unchanged():
    beneath = {"spec": {"model": {"name": "gpt2"}}}
    document_of(beneath, {"model.name": "t5-base"})
    assert beneath == {"spec": {"model": {"name": "gpt2"}}}


def test_a_data_set_takes_the_place_of_tokens_and_tokens_that_of_a_data_set():
    assert document_of({"spec": {"workload": {"tokens": "1B"}}}, {"workload.dataset.examples": "2k"})[
        "spec"
    ] == {"workload": {"dataset": {"examples": "2k"}}}
    beneath = {"spec": {"workload": {"dataset": {"examples": "2k", "length": 512}}}}
    assert document_of(beneath, {"workload.tokens": "1B"})["spec"] == {"workload": {"tokens": "1B"}}
    more = document_of(beneath, {"workload.dataset.epochs": 2.0})["spec"]["workload"]["dataset"]
    assert more == {"examples": "2k", "length": 512, "epochs": 2.0}


def test_a_data_set_counts_its_tokens_and_gpu_types_may_share_a_flag():
    job = JobFlags(model="gpt2", examples="2k", epochs=3.0, sequence_length=1024)
    plan, request = read(None, job, HardwareFlags(gpu=["A100-SXM4-40GB, H100", "L4"]), FixedLayoutFlags(tp=2))
    assert request.workload.tokens == 2_000 * 1024 * 3
    assert plan.spec.resources.gpu_types == ("A100-SXM4-40GB", "H100", "L4")
    assert plan.spec.layout.tp == 2


def test_bits_of_weights_belong_to_qlora():
    with pytest.raises(OptionError, match=r"--quantised-bits.*8.*--method qlora"):
        read(None, dataclasses.replace(JOB, method="lora", quantised_bits=8), HARDWARE)
    plan, _ = read(None, dataclasses.replace(JOB, method="qlora", quantised_bits=8), HARDWARE)
    assert plan.spec.workload.quantised_bits == 8
    again, _ = read_over(plan, JobFlags(method="lora"))  # a manifest may hold the default
    assert again.spec.workload.quantised_bits == 8
