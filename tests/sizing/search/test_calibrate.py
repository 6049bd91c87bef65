"""Measured runs correct predictions: little for a few steps, much for many, as far as they are alike."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Columns
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.observation import dumps, loads, observe, timed
from rightsizer_engine.domain.workload import Precision, Recompute, Workload
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.correction import configuration_slack, correct
from rightsizer_engine.estimate.evidence import Calibration, LayoutFamily, Quantity, layout_family
from rightsizer_engine.estimate.goodput import Reliability
from rightsizer_engine.estimate.prediction import predict
from rightsizer_engine.search.calibrate import (
    MOST_OBSERVATIONS,
    calibration,
    correction_factors,
    merge_observations,
)
from rightsizer_engine.search.explain import explain
from rightsizer_engine.search.pricing.context import checkpoint_bytes
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Request

WORK = Workload(tokens=1e9, sequence_tokens=8192, global_batch_sequences=64)
FSDP = Layout(dp=8, sharding=Sharding.ZERO3, micro_batches=8)
CASE = Case(
    architecture=lookup.model("Llama 3.1 8B"),
    workload=WORK,
    cluster=lookup.cluster("H100-SXM5-80GB"),
    framework=lookup.framework("torchtitan"),
    layout=FSDP,
)
STEP_S = float(predict(Cases.of(CASE)).step_s)
BYTES = float(predict(Cases.of(CASE)).memory.allocated_bytes)


def measured(ratio: float, steps: int = 1400, *, run: str = "a", case: Case = CASE, memory: float = 0.0):
    """The observation of a run that took `ratio` of its prediction."""
    step_s = float(predict(Cases.of(case)).step_s)
    return observe(case, run=run, step_s=[ratio * step_s] * (steps + 1), allocated_bytes=memory * BYTES)


def factor(observations, case: Case = CASE, quantity: Quantity = Quantity.STEP) -> tuple[float, float]:
    """The correction of a case, and the remaining share of its sigma."""
    found = correct(calibration(observations), Cases.of(case), np.asarray(0.12), quantity)
    return float(found.factor), float(found.sigma_factor)


def test_without_runs_nothing_changes():
    with_none = predict(Cases.of(CASE), Calibration())
    assert with_none.step_s == predict(Cases.of(CASE)).step_s
    assert size(request()) == replace(
        size(request(calibration=Calibration())), request=size(request()).request
    )


@pytest.mark.parametrize(("dp", "waits"), [(8, True), (16, False)], ids=["one-node", "two-nodes"])
def test_own_steps_on_several_nodes_have_their_stragglers_in_them(dp, waits):
    own = calibration([measured(1.0, case=replace(CASE, layout=replace(FSDP, dp=dp)))])
    found = size(request(calibration=own, gpu_counts=(32,), deadline_s=None))
    assert ("stragglers" in found.option.lost_by_cause) is waits


@pytest.mark.parametrize(
    ("known", "precision", "slower"),
    [
        ({}, Precision.BF16, True),
        ({}, Precision.FP8, False),
        ({"framework_assumed": False}, Precision.BF16, False),
        ({"calibration": calibration([measured(1.0)])}, Precision.BF16, False),
    ],
    ids=["nothing-known", "8-bits", "named", "measured"],
)
def test_published_stacks_are_slower_if_none_is_named_or_measured(known, precision, slower):
    asked = request(**{"framework_assumed": True, "gpu_counts": (32,), "deadline_s": None} | known)
    asked = replace(asked, workload=replace(asked.workload, precision=precision))
    assert ("slower_stack" in size(asked).option.lost_by_cause) is slower


def test_more_steps_move_it_further_and_make_it_surer():
    found = [factor([measured(0.87, steps)]) for steps in (1, 5, 20, 100, 1400)]
    moved, left = zip(*found, strict=True)
    assert list(moved) == sorted(moved, reverse=True)
    assert list(left) == sorted(left, reverse=True)
    assert moved[0] > 0.98
    assert 0.87 < moved[-1] < 0.95


@pytest.mark.parametrize("ratio", [0.7, 0.87, 1.3])
def test_the_correction_is_between_none_and_the_measured_one(ratio):
    moved, _ = factor([measured(ratio)])
    assert min(1.0, ratio) <= moved <= max(1.0, ratio)


@pytest.mark.parametrize(
    ("nearer", "further"),
    [
        (CASE, replace(CASE, layout=replace(FSDP, micro_batch=4))),
        (
            replace(CASE, layout=replace(FSDP, micro_batch=4)),
            replace(CASE, architecture=lookup.model("Qwen3 8B")),
        ),
        (
            replace(CASE, architecture=lookup.model("Qwen3 8B")),
            replace(CASE, architecture=lookup.model("Qwen3 8B"), layout=Layout(pp=8)),
        ),
        (
            replace(CASE, architecture=lookup.model("Qwen3 8B"), layout=Layout(pp=8)),
            replace(CASE, cluster=lookup.cluster("A100-SXM4-80GB"), layout=Layout(pp=8)),
        ),
        (
            replace(CASE, cluster=lookup.cluster("A100-SXM4-80GB")),
            replace(
                CASE,
                cluster=lookup.cluster("A100-SXM4-80GB"),
                framework=lookup.framework("megatron-core"),
            ),
        ),
    ],
    ids=["configuration", "model", "family", "gpu", "framework"],
)
def test_the_less_alike_the_less_it_counts(nearer, further):
    off, as_predicted = [measured(0.8)], [measured(1.0)]
    assert factor(off, nearer)[0] < factor(off, further)[0] <= 1.0
    assert factor(as_predicted, nearer)[1] < factor(as_predicted, further)[1]


def test_one_run_moves_others_by_less_than_half_and_many_that_agree_by_most_of_it():
    """One run may be a scatter around a right mean; ten that agree tell that the stack is off."""
    other = replace(CASE, architecture=lookup.model("Qwen3 8B"))
    layouts = [replace(FSDP, micro_batch=2**i, recompute=r) for i in range(5) for r in list(Recompute)[:2]]
    runs = [measured(0.8, case=replace(CASE, layout=one), run=str(one)) for one in layouts]
    moved = [float(np.log(factor(runs[:n], other)[0]) / np.log(0.8)) for n in (1, 10)]
    assert 0.05 < moved[0] < 0.5 < moved[1] < 1.0


def test_runs_that_agree_count_more_than_one():
    one, three = [measured(0.8)], [measured(0.8, run=str(i)) for i in range(3)]
    assert factor(three)[0] < factor(one)[0]
    assert factor(three)[1] < factor(one)[1]


def test_runs_far_off_the_prediction_widen_the_interval():
    """Runs that deviate more than sigma do not narrow the interval."""
    assert factor([measured(3.0, run=str(i)) for i in range(3)])[1] > factor([measured(1.0)])[1]


def test_runs_far_off_on_other_hardware_and_another_stack_change_nothing():
    """The demo on a laptop's CPU must not cost the next plan for H100s a node."""
    elsewhere = replace(
        CASE, cluster=lookup.cluster("V100-SXM2-32GB"), framework=lookup.framework("megatron-lm-2022")
    )
    assert factor([measured(30.0, case=elsewhere)]) == pytest.approx((1.0, 1.0))
    with_both = factor([measured(30.0, case=elsewhere), measured(0.87)])
    assert with_both == pytest.approx(factor([measured(0.87)]), rel=0.03)


def test_memory_is_corrected_alone():
    run = [measured(1.0, memory=1.2)]
    assert factor(run, quantity=Quantity.MEMORY)[0] > 1.05
    changed = predict(Cases.of(CASE), calibration(run)).memory
    assert changed.context_bytes == predict(Cases.of(CASE)).memory.context_bytes
    assert changed.allocated_bytes > 1.05 * BYTES


def test_causes_still_sum_to_the_step():
    found = predict(Cases.of(CASE), calibration([measured(0.9)]))
    assert float(found.step_time.total_s) == pytest.approx(float(found.step_s))


def test_no_run_makes_a_step_faster_than_the_peak():
    runs = [measured(0.05, run=str(i)) for i in range(9)]
    assert float(predict(Cases.of(CASE), calibration(runs)).mfu) <= 1.0


def test_many_layouts_at_once_agree_with_one_by_one():
    learnt = calibration([measured(0.8), measured(1.1, case=replace(CASE, layout=Layout(tp=8)), run="b")])
    some = [FSDP, Layout(tp=8), Layout(pp=4), Layout(dp=2), replace(FSDP, dp=16)]
    together = correct(learnt, Cases.of(CASE, layouts=Columns.stack(some)), np.asarray(0.12), Quantity.STEP)
    stacked = correct(
        learnt, Cases.stack(replace(CASE, layout=one) for one in some), np.full(5, 0.12), Quantity.STEP
    )
    alone = [
        float(correct(learnt, Cases.of(replace(CASE, layout=one)), np.asarray(0.12), Quantity.STEP).factor)
        for one in some
    ]
    assert together.factor == pytest.approx(alone)
    assert stacked.factor == pytest.approx(alone)


@pytest.mark.parametrize(
    ("layout", "family"),
    [
        (Layout(dp=8), LayoutFamily.DATA),
        (Layout(dp=8, sharding=Sharding.HSDP), LayoutFamily.SHARDED),
        (Layout(cp=2, sharding=Sharding.ZERO3), LayoutFamily.TENSOR),
        (Layout(tp=2, pp=2), LayoutFamily.PIPELINE),
        (Layout(dp=8, pp=2, ep=8), LayoutFamily.EXPERT),
    ],
    ids=lambda value: value.name if isinstance(value, LayoutFamily) else "",
)
def test_a_layout_belongs_to_its_most_intricate_family(layout, family):
    assert layout_family(Columns.of(layout)) == family


def request(**changes) -> Request:
    asked = {
        "architecture": CASE.architecture,
        "workload": replace(WORK, tokens=20e9, global_batch_sequences=128),
        "framework": CASE.framework,
        "clusters": (replace(CASE.cluster, max_gpus=64),),
        "deadline_s": 3 * 86400.0,
    }
    return Request(**(asked | changes))


def test_a_stack_slower_than_predicted_gets_more_gpus_with_a_reason():
    deadline_s = 1.02 * size(request(confidence=0.5)).option.finish_s
    before = size(request(deadline_s=deadline_s, confidence=0.5))
    same = replace(CASE, workload=request().workload, layout=before.option.layout)
    learnt = calibration([measured(1.4, case=same)])
    after = size(request(deadline_s=deadline_s, confidence=0.5, calibration=learnt))
    assert after.option.gpus > before.option.gpus
    assert after.option.step_correction > 1.02
    assert any("measured 1.40 x predicted over 1,400 steps" in line for line in explain(after).why)


def test_the_search_finds_a_measured_layout_that_its_bound_would_hide():
    """The pruning must not depend on one size as the bound of its family."""
    fast = replace(CASE, workload=request().workload, layout=replace(FSDP, dp=16, micro_batches=8))
    learnt = calibration([measured(0.4, case=fast)])
    asked = request(calibration=learnt)
    nouns = Cases.of(fast)
    assert configuration_slack(learnt, nouns, 0.12, 1.28) > 1.1
    found = size(asked)
    only = size(replace(asked, gpu_counts=(16,)))
    assert found.option.gpus <= only.option.gpus


def test_a_run_counts_once_and_the_newest_wins():
    old, new = measured(0.8), measured(0.9)
    both = merge_observations([old], [new])
    assert both == (new,)
    many = [replace(old, run=str(i)) for i in range(MOST_OBSERVATIONS + 5)]
    assert len(merge_observations(many, [])) == MOST_OBSERVATIONS


def test_a_step_that_stalls_or_starts_does_not_count():
    found = observe(CASE, run="a", step_s=[9.0, 1.0, 1.0, 1.1, 60.0, 0.9, float("nan"), 0.0])
    assert found.steps == 4
    assert found.step_s == pytest.approx(1.0)


def test_a_run_without_a_measurement_is_no_observation():
    assert observe(CASE, run="a", step_s=[]) is None


@pytest.mark.parametrize(("seconds", "kept"), [(30.0, 30.0), (-5.0, 0.0), (1e300, 0.0), (float("nan"), 0.0)])
def test_a_time_that_no_clock_can_mean_counts_as_not_measured(seconds, kept):
    found = timed(measured(1.0), start_s=seconds, checkpoint_s=seconds)
    assert (found.start_s, found.checkpoint_s) == (kept, kept)


def test_observations_survive_being_written():
    kept = [
        timed(measured(0.9, memory=1.1), start_s=12.5, checkpoint_s=3.0),
        measured(1.1, run="b", case=replace(CASE, layout=Layout(tp=8))),
    ]
    again = loads(dumps(kept))
    assert dumps(again) == dumps(kept)
    assert calibration(again) == calibration(kept)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(schema="other/v9"), "schema"),
        (lambda d: d.update(observations=3), "must be a list"),
        (lambda d: d["observations"][0].update(framework="abacus"), "framework"),
        (lambda d: d["observations"][0].pop("layout"), "layout"),
        (lambda d: d["observations"][0]["workload"].update(precision="bf7"), "precision"),
        (lambda d: d["observations"][0]["architecture"].update(layers="many"), "layers"),
        (lambda d: d["observations"][0]["measured"].update(stepSeconds=-1), "stepSeconds"),
        (lambda d: d["observations"][0]["measured"].update(startSeconds=1e300), "startSeconds"),
    ],
    ids=["schema", "list", "framework", "layout", "enum", "type", "number", "a start of ages"],
)
def test_a_wrong_file_is_one_error_that_names_the_field(change, words):
    document = json.loads(dumps([measured(0.9)]))
    change(document)
    with pytest.raises(InputError, match=words):
        loads(json.dumps(document))


def test_a_field_of_a_later_version_is_ignored():
    document = json.loads(dumps([measured(0.9)]))
    document["observations"][0]["workload"]["mood"] = "good"
    assert loads(json.dumps(document))[0].case.workload == WORK


def test_the_table_has_one_row_for_each_stack_and_family():
    split = replace(CASE, layout=Layout(tp=8))
    runs = [measured(0.9), measured(0.8, run="b"), measured(1.1, run="c", case=split)]
    rows = correction_factors(calibration(runs))
    assert [(r.family, r.runs) for r in rows] == [(LayoutFamily.SHARDED, 2), (LayoutFamily.TENSOR, 1)]
    assert rows[0].step_ratio == pytest.approx((0.9 * 0.8) ** 0.5)
    assert rows[0].memory_ratio is None


def test_measured_start_up_and_write_time_replace_the_assumed_ones():
    """Writes five times as slow: fewer checkpoints, more loss; a slow start: a dearer restart."""
    before = size(request(gpu_counts=(32,), deadline_s=None)).option
    slow_s = 5 * checkpoint_bytes(CASE) / Reliability().checkpoint_bytes_per_s_per_node
    seen = replace(measured(1.0), start_s=1800.0, checkpoint_s=slow_s)
    found = size(request(gpu_counts=(32,), deadline_s=None, calibration=calibration([seen]))).option
    assert found.checkpoint_interval_s == pytest.approx(5**0.5 * before.checkpoint_interval_s, rel=0.05)
    assert found.lost_by_cause["checkpoint"] > 1.5 * before.lost_by_cause["checkpoint"]
    assert found.lost_by_cause["restart"] > 2 * before.lost_by_cause["restart"]
