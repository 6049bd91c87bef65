"""Every sentence of a decision, from an option whose figures are stated."""

from dataclasses import replace

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import Recompute, Workload
from rightsizer_engine.estimate.evidence import Calibration, Evidence, Residual
from rightsizer_engine.estimate.goodput import Reliability
from rightsizer_engine.search.reasons import (
    calibration_text,
    gpus_text,
    layout_text,
    no_plan_reason,
    plan_reasons,
)
from rightsizer_engine.search.types import Binding, Option, Request

HOUR, DAY, GIB = 3600.0, 86400.0, 2.0**30
H100 = lookup.cluster("H100-SXM5-80GB")
CLUSTER = replace(H100, gpu=replace(H100.gpu, memory_bytes=80 * GIB), max_gpus=4096)
REQUEST = Request(
    architecture=lookup.model("meta-llama/Llama-3.1-8B"),
    workload=Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=512),
    framework=framework("torchtitan"),
    clusters=(CLUSTER,),
    deadline_s=2 * DAY,
    max_gpus=64,
    reliability=Reliability(failures_per_1000_node_days=0.0),
)
OPTION = Option(
    cluster=CLUSTER,
    layout=Layout(dp=16),
    gpus=16,
    nodes=2,
    spare_nodes=0,
    global_batch_sequences=512,
    step_s=10.0,
    step_by_cause_s={"matmul": 9.0, "host": 0.6, "sharding": 0.4},
    memory_by_cause_bytes={"weights": 10 * GIB, "optimizer_states": 30 * GIB},
    allocated_bytes=40 * GIB,
    device_bytes=60 * GIB,
    memory_limit_bytes=76 * GIB,
    tokens_per_s=1e5,
    mfu=0.4,
    sigma=0.1,
    goodput=0.9,
    lost_by_cause={"checkpoint": 0.01, "lost_work": 0.02, "restart": 0.035, "stragglers": 0.03},
    checkpoint_interval_s=2 * HOUR,
    finish_s=DAY,
    finish_lo_s=0.9 * DAY,
    finish_hi_s=1.1 * DAY,
    finish_at_confidence_s=1.5 * DAY,
    cost_usd=1000.0,
    energy_kwh=100.0,
)


def reasons(request=REQUEST, chosen=OPTION, fewer=None, same=None, other_clusters=()):
    return plan_reasons(request, chosen, fewer=fewer, same=same, other_clusters=other_clusters)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ({}, "one GPU, micro-batch 1"),
        ({"dp": 8, "micro_batch": 2}, "DP 8, micro-batch 2"),
        ({"tp": 8, "pp": 16, "vpp": 4, "dp": 2}, "TP 8 x PP 16 (x 4 interleaved) x DP 2, micro-batch 1"),
        (
            {"cp": 2, "ep": 8, "dp": 8, "sharding": Sharding.ZERO1},
            "CP 2 x DP 8 x EP 8, ZeRO-1, micro-batch 1",
        ),
        ({"dp": 8, "sharding": Sharding.ZERO2}, "DP 8, ZeRO-2, micro-batch 1"),
        ({"dp": 8, "sharding": Sharding.ZERO3}, "FSDP 8, micro-batch 1"),
        ({"dp": 8, "sharding": Sharding.HSDP, "shard_group": 4}, "HSDP 8 in groups of 4, micro-batch 1"),
        ({"recompute": Recompute.SELECTIVE}, "one GPU, micro-batch 1, selective recompute"),
        ({"recompute": Recompute.FULL}, "one GPU, micro-batch 1, full recompute"),
        ({"offload": Offload.OPTIMIZER}, "one GPU, micro-batch 1, optimizer in host memory"),
        (
            {"offload": Offload.OPTIMIZER | Offload.PARAMETERS},
            "one GPU, micro-batch 1, weights and optimizer in host memory",
        ),
    ],
)
def test_a_layout_is_described_by_its_degrees(layout, text):
    assert layout_text(Layout(**layout)) == text


def test_gpus_are_listed_with_their_nodes_if_there_are_several():
    assert gpus_text(OPTION) == "16 H100-SXM5-80GB (2 nodes)"
    assert gpus_text(replace(OPTION, gpus=1024, nodes=1)) == "1,024 H100-SXM5-80GB"


LATE = replace(OPTION, gpus=8, nodes=1, finish_at_confidence_s=2 * DAY + 3 * HOUR)
IN_TIME = replace(LATE, finish_at_confidence_s=2 * DAY)


@pytest.mark.parametrize(
    ("request_", "chosen", "fewer", "text"),
    [
        (
            replace(REQUEST, deadline_s=None), OPTION, None,
            "no deadline given: the fewest GPUs that fit, up to half as much again as the least cost"
            " (384 GPU-hours)",
        ),
        (REQUEST, replace(OPTION, gpus=1, nodes=1), None, "one GPU is enough"),
        (
            REQUEST, replace(OPTION, gpus=2), None,
            "fewer than 2 GPUs do not have enough memory or are not allowed",
        ),
        (
            REQUEST, OPTION, LATE,
            "8 H100-SXM5-80GB, the next smaller size, would finish 3h late at 0.9 confidence",
        ),
        (
            REQUEST, OPTION, IN_TIME,
            "8 H100-SXM5-80GB, the next smaller size, would exceed another limit: $1,000, 60GiB per GPU",
        ),
        (
            REQUEST, OPTION, replace(IN_TIME, cost_usd=None),
            "8 H100-SXM5-80GB, the next smaller size, would exceed another limit:"
            " an unknown amount (no price), 60GiB per GPU",
        ),
    ],
    ids=["no deadline", "one GPU", "no smaller size", "late", "another limit", "no price"],
)  # fmt: skip
def test_the_first_reason_explains_the_number_of_gpus(request_, chosen, fewer, text):
    assert reasons(request_, chosen, fewer)[0] == text


@pytest.mark.parametrize(
    ("same", "end"),
    [
        (None, "; no other combination of parallelism fits"),
        (replace(OPTION, layout=Layout(tp=16), finish_s=1.25 * DAY), "TP 16, micro-batch 1, is 25% slower"),
        (
            replace(OPTION, layout=Layout(tp=16), finish_s=0.985 * DAY),
            "TP 16, micro-batch 1, is 1.5% faster but more complex",
        ),
    ],
    ids=["alone", "slower", "faster"],
)
def test_the_second_reason_compares_the_next_layout(same, end):
    text = reasons(same=same)[1]
    assert text.startswith("DP 16, micro-batch 1 is the best layout on 16 GPUs; ")
    assert text.endswith(end)


def test_memory_is_stated_with_its_share_and_largest_cause():
    assert reasons()[2] == "memory: 60GiB per GPU, 75% of the device, largest part optimizer states"
    assert reasons(chosen=replace(OPTION, memory_by_cause_bytes={}))[2].endswith("75% of the device")


def test_other_gpus_are_compared_by_price_where_both_have_one():
    other = replace(OPTION, gpus=32, nodes=4, cost_usd=1500.0)
    priced, unpriced = (reasons(other_clusters=(replace(other, cost_usd=usd),))[3] for usd in (1500.0, None))
    assert priced == "32 H100-SXM5-80GB (4 nodes) would cost $1,500 instead of $1,000"
    assert unpriced == "32 H100-SXM5-80GB (4 nodes) would take 768 GPU-hours instead of 384"


@pytest.mark.parametrize(
    ("causes", "lines"),
    [
        ({"matmul": 9.5, "host": 0.5}, ("5% of each step goes to kernel launches on the host",)),
        ({"matmul": 9.6, "host": 0.4}, ()),
        (
            {"matmul": 7.0, "host": 1.0, "pipeline_bubble": 2.0},
            ("20% of each step goes to the pipeline bubble",),
        ),
        ({"matmul": 10.0}, ()),
    ],
    ids=["just enough", "too little", "the largest", "none"],
)
def test_the_largest_overhead_is_stated_from_five_percent(causes, lines):
    assert reasons(chosen=replace(OPTION, step_by_cause_s=causes))[3:] == lines


FAILURES = "expected; failures, and checkpoints every 2h, take 6.5% of the time"


@pytest.mark.parametrize(
    ("per_1000_node_days", "start"),
    [(250.0, None), (250.2, "about 1 failure"), (749.0, "about 1 failure"), (2000.0, "about 4 failures")],
)
def test_failures_are_stated_if_more_than_half_of_one_is_expected(per_1000_node_days, start):
    """2 nodes for a day."""
    reliability = Reliability(failures_per_1000_node_days=per_1000_node_days)
    lines = reasons(replace(REQUEST, reliability=reliability, spare_nodes=0))[4:]
    assert lines == (() if start is None else (f"{start} {FAILURES}",))


@pytest.mark.parametrize(("days", "text"), [(0.5, "1 spare node would"), (1.5, "2 spare nodes would")])
def test_spares_are_advised_if_none_are_chosen(days, text):
    """Nodes in repair are Poisson: 2 nodes x 0.5 a day x the days: means of 0.5 (1 covers 91 %) and 1.5."""
    reliability = Reliability(failures_per_1000_node_days=500.0, repair_s=days * DAY)
    (line,) = reasons(replace(REQUEST, reliability=reliability))[4:]
    assert line == f"about 1 failure {FAILURES}; {text} avoid waiting for repairs"


def test_a_rounded_batch_is_stated_with_its_change():
    assert reasons(chosen=replace(OPTION, global_batch_sequences=496))[-1] == (
        "global batch: 496 sequences instead of 512 (-3.1%)"
    )


def measured(ln=0.0, steps=100, *, name="torchtitan", gpu="H100-SXM5-80GB", step=True):
    residual = Residual(ln=ln, sigma=0.1, noise=0.01) if step else None
    run = {"run": "a", "model": "m", "sequence_tokens": 4096, "layout": Layout()}
    return Evidence(framework=name, gpu=gpu, steps=steps, step=residual, **run)


CORRECTED = replace(OPTION, step_correction=1.25, memory_correction=0.9)
CHANGE = "; step time corrected x 1.25, memory x 0.90; ETA 24h, uncorrected 19h12m"


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        ((), ""),
        ((measured(name="megatron-core", gpu="A100"),), ""),
        (
            (measured(name="megatron-core"),),
            "calibrated from runs of torchtitan or on H100-SXM5-80GB; no run has both",
        ),
        (
            (measured(gpu="A100"), measured(step=False)),
            "calibrated from runs of torchtitan or on H100-SXM5-80GB; no run has both",
        ),
        (
            (measured(0.2231436), measured(step=False)),
            "measured 1.25 x predicted over 100 steps (1 run of torchtitan on H100-SXM5-80GB)",
        ),
        (
            (measured(0.2231436, 300), measured(0.0, 700)),
            "measured 1.07 x predicted over 1,000 steps (2 runs of torchtitan on H100-SXM5-80GB)",
        ),
    ],
    ids=["none", "unrelated", "same GPU", "same framework", "one run", "two runs, weighed by steps"],
)
def test_measured_runs_are_stated_with_their_effect(evidence, text):
    request = replace(REQUEST, calibration=Calibration(evidence=evidence))
    assert calibration_text(request, CORRECTED) == (text and text + CHANGE)


def refused(binding, request=REQUEST, nearest=(LATE,), least=100 * GIB, needs=None):
    return no_plan_reason(
        request, CLUSTER, binding, nearest=nearest, least_bytes=least, needs_gpus=needs
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"binding": Binding.MEMORY},
            "memory: no layout that torchtitan supports fits: the smallest needs 100GiB per GPU;"
            " H100-SXM5-80GB has 80GiB, the limit is 64 GPUs",
        ),
        (
            {"binding": Binding.MEMORY, "least": 79 * GIB, "request": replace(REQUEST, max_gpus=None)},
            "memory: no layout that torchtitan supports is certain to fit: the smallest needs 79GiB per GPU;"
            " H100-SXM5-80GB has 80GiB, the limit is 4,096 GPUs",
        ),
        (
            {"binding": Binding.LAYOUT, "request": replace(REQUEST, pinned={"tp": 8, "pp": 2})},
            "layout: torchtitan has no valid layout for the pinned layout (tp=8, pp=2)",
        ),
        ({"binding": Binding.LAYOUT}, "layout: torchtitan has no valid layout for this model and batch"),
        (
            {"binding": Binding.BATCH},
            "global batch: 512 sequences do not divide evenly over 1 to 64 H100-SXM5-80GB;"
            " change the batch or allow other GPU counts",
        ),
        (
            {"binding": Binding.MAX_GPUS, "nearest": ()},
            "GPUs: no allowed GPU count in 1 to 64 for H100-SXM5-80GB",
        ),
        (
            {"binding": Binding.BUDGET, "request": replace(REQUEST, max_usd=900.0)},
            "budget: the cheapest plan that meets the deadline costs $1,000 (8 H100-SXM5-80GB);"
            " the limit is $900",
        ),
        (
            {"binding": Binding.MAX_GPUS, "needs": 1024},
            "needs 1,024 GPUs; the limit is 64; 8 H100-SXM5-80GB finish 3h late at 0.9 confidence",
        ),
        (
            {"binding": Binding.DEADLINE},
            "deadline: no GPU count meets it with a global batch of 512 sequences;"
            " 8 H100-SXM5-80GB finish 3h late at 0.9 confidence",
        ),
    ],
)
def test_a_refusal_states_the_need_and_the_limit(given, text):
    assert refused(**given) == text
