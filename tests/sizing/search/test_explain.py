from dataclasses import replace

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.observation import observe
from rightsizer_engine.domain.workload import (
    AttentionKernel,
    LossKernel,
    Method,
    Optimizer,
    Precision,
    Recompute,
    Workload,
)
from rightsizer_engine.search.calibrate import calibration
from rightsizer_engine.search.explain import explain, probe_advice, verdict
from rightsizer_engine.search.reasons import layout_text
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan, Request

REQUEST = Request(
    architecture=lookup.model("meta-llama/Llama-3.1-8B"),
    workload=Workload(tokens=100e9, sequence_tokens=8192, global_batch_sequences=512),
    framework=framework("torchtitan"),
    clusters=(lookup.cluster("H100"),),
    deadline_s=72 * 3600.0,
    max_gpus=128,
)
ANSWER = size(REQUEST)


def test_the_verdict_comes_first_with_the_size():
    assert isinstance(ANSWER, Plan)
    line = explain(ANSWER).lines[0]
    assert line == verdict(ANSWER)
    assert f"{ANSWER.option.gpus} H100" in line
    assert "80 %" in line
    assert "$" in line


def test_the_reason_against_fewer_gpus_is_stated():
    assert any("late" in line for line in explain(ANSWER).why)


def test_each_runner_up_has_the_reason_against_it():
    explanation = explain(ANSWER)
    assert len(explanation.runners_up) >= 2
    assert all(": " in line for line in explanation.runners_up)


@pytest.mark.parametrize("elastic", [True, False])
def test_more_gpus_are_not_called_late(elastic):
    answer = size(replace(REQUEST, elastic=elastic))
    lines = zip(answer.runners_up, explain(answer).runners_up, strict=True)
    more = [line for option, line in lines if option.gpus > answer.option.gpus]
    assert more
    assert not any("late" in line for line in more)


def test_an_unknown_framework_is_a_caveat():
    answer = size(replace(REQUEST, framework=framework("custom"), max_gpus=256))
    assert any("unknown framework" in line for line in explain(answer).caveats)


@pytest.mark.parametrize(
    ("stated", "said", "left"),
    [
        ({}, "compiled loss, sdpa attention, eager kernels, AdamW with moments of 4 bytes", ""),
        ({"loss": LossKernel.FUSED}, "sdpa attention", "loss"),
        ({"attention": AttentionKernel.FLASH_3}, "compiled loss", "attention"),
        ({"optimizer": Optimizer.SGD}, "eager kernels", "AdamW"),
    ],
    ids=["nothing stated", "the loss", "attention", "the optimizer"],
)
def test_settings_left_to_the_framework_are_listed(stated, said, left):
    answer = size(replace(REQUEST, workload=replace(REQUEST.workload, **stated)))
    (line,) = [line for line in explain(answer).caveats if line.startswith("taken as torchtitan")]
    assert said in line
    assert not left or left not in line


def test_no_plan_gives_its_reason_and_the_nearest():
    answer = size(replace(REQUEST, max_gpus=8))
    lines = explain(answer).lines
    assert lines[0].startswith("no plan: needs ")
    assert len(lines) >= 2


def test_shares_are_of_the_whole():
    explanation = explain(ANSWER)
    assert 0.9 < sum(share for _, share in explanation.step) <= 1.0 + 1e-9
    assert 0.9 < sum(share for _, share in explanation.memory) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(), "one GPU, micro-batch 1"),
        (Layout(dp=56, sharding=Sharding.ZERO3), "FSDP 56, micro-batch 1"),
        (
            Layout(dp=4, tp=8, pp=2, vpp=4, sharding=Sharding.ZERO1, recompute=Recompute.FULL),
            "TP 8 x PP 2 (x 4 interleaved) x DP 4, ZeRO-1, micro-batch 1, full recompute",
        ),
        (
            Layout(dp=32, sharding=Sharding.HSDP, shard_group=8, micro_batch=2),
            "HSDP 32 in groups of 8, micro-batch 2",
        ),
        (
            Layout(dp=2, sharding=Sharding.ZERO3, offload=Offload.OPTIMIZER),
            "FSDP 2, micro-batch 1, optimizer in host memory",
        ),
    ],
    ids=["one", "fsdp", "3d", "hsdp", "offload"],
)
def test_a_layout_in_words(layout, words):
    assert layout_text(layout) == words


def strange(**changes):
    """A plan of which hardly anything was measured: adapters on T4s, by a stack without a row."""
    work = replace(REQUEST.workload, sequence_tokens=1024, method=Method.QLORA, precision=Precision.FP16)
    t4 = (lookup.cluster("T4"),)
    return size(replace(REQUEST, workload=work, framework=framework("unsloth"), clusters=t4, **changes))


def test_measured_runs_are_counted_by_facet():
    said = explain(ANSWER).evidence
    assert said.startswith("well measured: torchtitan: ")
    assert "H100-SXM5-80GB: " in said
    assert "all of these: " in said
    assert f"evidence: {said}" in explain(ANSWER).lines
    assert "T4: no source" in explain(strange(deadline_s=None)).evidence


def test_a_probe_is_advised_only_where_little_was_measured():
    answer = strange(deadline_s=None)
    advice = probe_advice(answer.request, answer.option)
    assert "(no run: unsloth, T4): `rightsizer probe` narrows the interval" in advice
    assert advice in explain(answer).caveats
    assert probe_advice(ANSWER.request, ANSWER.option) == ""


def test_without_similar_runs_the_advice_is_to_measure_first():
    answer = strange(deadline_s=None)
    long = replace(answer.request.workload, sequence_tokens=262_144)
    asked = replace(answer.request, workload=long)
    assert probe_advice(asked, answer.option).startswith("nothing like this was ever measured")


def test_own_runs_on_the_stack_and_gpu_end_the_advice():
    answer = strange(deadline_s=None)
    case = Case(
        architecture=REQUEST.architecture,
        workload=answer.request.workload,
        cluster=answer.option.cluster,
        framework=answer.request.framework,
        layout=answer.option.layout,
    )
    own = calibration([observe(case, run="a", step_s=[answer.option.step_s] * 20, allocated_bytes=0.0)])
    assert probe_advice(replace(answer.request, calibration=own), answer.option) == ""
