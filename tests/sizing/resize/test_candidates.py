"""The sums of a resize by hand: a job at 1,000 tokens/s on 8 GPUs with 100 h of work left."""

import math
from dataclasses import replace
from statistics import NormalDist

import pytest

from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.resize.candidates import CandidateSizes, candidate_sizes, choose_size
from rightsizer_engine.resize.types import Action, History, JobSize, Limits, Pressure, Running

HOUR = 3600.0
PRESENT = JobSize(gpus=8, tokens_per_s=1000.0)
P = load_resize().replace(
    most_shrink=2.0, shrink_margin=0.1, worth_under_pressure=1.0, relayout_gain=1.5, hopeless_slower=0.5,
    in_place_within=0.1,
)  # fmt: skip


def sizes(*alternatives, **changes):
    job = {
        "tokens_left": 100 * HOUR * 1000.0, "deadline_left_s": 120 * HOUR, "restart_s": HOUR,
        "lost_s": 2 * HOUR, "z": 0.0, "others_wait": False, "pressure": Pressure.ON_PRESSURE,
    }  # fmt: skip
    return CandidateSizes(present=PRESENT, alternatives=alternatives, **(job | changes))


def test_another_size_takes_the_restart_and_repeats_the_lost_work():
    """1 h, and 102 h of work at twice the rate; at quantile 1 the rate is exp(-0.5) of it."""
    size = JobSize(gpus=16, tokens_per_s=2000.0, sigma=0.5)
    assert sizes().seconds(PRESENT) == 100 * HOUR
    assert sizes().seconds(size) == (1 + 51) * HOUR
    assert sizes().seconds(size, z=1.0) == pytest.approx((1 + 51 * math.exp(0.5)) * HOUR)
    assert sizes().seconds(JobSize(gpus=16, tokens_per_s=2000.0, goodput=0.5)) == (1 + 102) * HOUR


@pytest.mark.parametrize(
    ("deadline_h", "margin", "in_time"),
    [(52, 0.0, True), (51.9, 0.0, False), (65, 0.2, True), (64, 0.2, False)],
)
def test_a_size_is_in_time_up_to_its_deadline_less_the_margin(deadline_h, margin, in_time):
    some = sizes(deadline_left_s=deadline_h * HOUR)
    assert some.in_time(JobSize(gpus=16, tokens_per_s=2000.0), margin=margin) is in_time


@pytest.mark.parametrize(
    ("size", "deadline_h", "confidence"),
    [
        (JobSize(gpus=8, tokens_per_s=2000.0, sigma=0.5), 1 + 51 * math.exp(0.5), NormalDist().cdf(1.0)),
        (JobSize(gpus=8, tokens_per_s=2000.0), 53, 1.0),
        (JobSize(gpus=8, tokens_per_s=2000.0), 0.9, 0.0),  # the restart alone takes longer
        (PRESENT, 0.1, 0.0),
        (PRESENT, math.inf, None),
    ],
)
def test_confidence_is_a_lognormal_s_share(size, deadline_h, confidence):
    found = sizes(deadline_left_s=deadline_h * HOUR).confidence(size)
    assert found == (None if confidence is None else pytest.approx(confidence, abs=1e-9))


def test_no_work_left_is_in_time_for_sure():
    assert sizes(tokens_left=0.0, deadline_left_s=0.0).confidence(PRESENT) == 1.0
    some = sizes(tokens_left=500.0, lost_s=0.0, deadline_left_s=1e9)
    assert some.confidence(PRESENT) == pytest.approx(1.0)


def test_prices_and_savings_are_gpu_hours():
    """4 GPUs at 600: restart 1 h, 2 h of work in 3.33 h; to the end 800 against 666.7; 4 free for 100 h."""
    half = JobSize(gpus=4, tokens_per_s=600.0)
    assert sizes().price_gpu_hours(half) == pytest.approx(4 * (1 + 2 / 0.6))
    assert sizes().saves_gpu_hours(half) == pytest.approx(8 * 100 - 4 * 100 / 0.6)
    assert sizes().freed_gpu_hours(half) == pytest.approx(4 * 100)


@pytest.mark.parametrize(
    ("rate", "changes", "worth"),
    [
        (600.0, {}, True),  # saves 133 for 17
        (500.0, {}, True),  # saves nothing, frees 400 for 20; the policy acts only when others wait
        (500.0, {"pressure": Pressure.ALWAYS}, False),
        (500.0, {"pressure": Pressure.ALWAYS, "others_wait": True}, True),
        (500.0, {"others_wait": True, "restart_s": 96.1 * HOUR}, False),  # frees 400 for 400.4
    ],
)
def test_a_shrink_counts_its_savings_or_the_gpus_freed_under_pressure(rate, changes, worth):
    assert sizes(**changes).worth_shrinking(JobSize(gpus=4, tokens_per_s=rate), P) is worth


HALF = JobSize(gpus=4, tokens_per_s=600.0)


def test_too_many_gpus_shrink_to_the_fewest_in_time_with_the_sums():
    some = sizes(JobSize(gpus=3, tokens_per_s=580.0), HALF, deadline_left_s=200 * HOUR)
    choice = choose_size(some, P)
    assert (choice.action, choice.size) == (Action.SHRINK, HALF)
    assert choice.why == (
        "8 GPUs finish in 4d4h, 4d4h before the deadline; 4 GPUs finish in 7d3h, 29h before the deadline,"
        " which saves 116 GPU-hours net"
    )


def test_a_shrink_for_others_states_its_gain_and_cost():
    some = sizes(JobSize(gpus=4, tokens_per_s=500.0), deadline_left_s=300 * HOUR, others_wait=True)
    assert choose_size(some, P).why.endswith("which frees 400 GPU-hours for waiting jobs at a net cost of 20")


def test_a_shrink_that_does_not_pay_is_flagged_as_oversized():
    choice = choose_size(
        sizes(JobSize(gpus=4, tokens_per_s=500.0), deadline_left_s=300 * HOUR, pressure=Pressure.ALWAYS), P
    )
    assert choice.oversized
    assert choice.why == "4 GPUs would meet the deadline too, but a restart costs more than it saves"


@pytest.mark.parametrize(
    ("rate", "sigma", "action"),
    [(1500.0, 0.0, Action.RELAYOUT), (1490.0, 0.0, Action.KEEP), (1600.0, 0.1, Action.KEEP)],
    ids=["the gain is enough", "too little", "too uncertain"],
)
def test_another_layout_is_taken_for_its_confident_gain(rate, sigma, action):
    other = JobSize(gpus=8, tokens_per_s=rate, sigma=sigma)
    choice = choose_size(sizes(other, z=1.0), P)
    assert choice.action is action
    if action is Action.RELAYOUT:  # 800 - 533.3 saved; 8 x (1 + 2 / 1.5) paid
        assert choice.why == "another layout on the same GPUs is 50% faster: saves 248 GPU-hours net"


def test_another_layout_that_would_be_late_or_gains_nothing_is_not_taken():
    other = JobSize(gpus=8, tokens_per_s=1500.0)
    assert choose_size(sizes(other, restart_s=100 * HOUR), P).action is Action.KEEP
    assert choose_size(sizes(other, restart_s=40 * HOUR), P).action is Action.KEEP  # pays 339 for 267


def test_any_gain_is_worth_another_layout():
    some = sizes(JobSize(gpus=8, tokens_per_s=1500.0), restart_s=31.9 * HOUR)  # 266.7 - 8 (31.9 + 1.33) = 0.8
    assert choose_size(some, P).action is Action.RELAYOUT


def test_a_late_job_takes_the_fewest_gpus_at_the_confidence_else_at_even_odds():
    sixteen, many = (
        JobSize(gpus=16, tokens_per_s=1500.0, sigma=0.1),
        JobSize(gpus=32, tokens_per_s=2500.0, sigma=0.1),
    )
    sure = choose_size(sizes(sixteen, many, deadline_left_s=70 * HOUR, z=1.0), P)  # 1 + 75.2 h or 1 + 45.1 h
    even = choose_size(sizes(sixteen, deadline_left_s=70 * HOUR, z=1.0), P)  # 1 + 68 h
    assert (sure.action, sure.size, even.size) == (Action.GROW, many, sixteen)
    assert "at even odds" not in sure.why
    assert even.why.endswith("past the deadline at even odds")


def test_a_late_job_may_change_only_its_layout():
    other = JobSize(gpus=8, tokens_per_s=1500.0)
    assert choose_size(sizes(other, deadline_left_s=80 * HOUR), P).action is Action.RELAYOUT


def test_a_job_late_at_every_size_keeps_its_gpus_or_gives_back_what_hardly_helps():
    none = choose_size(sizes(JobSize(gpus=16, tokens_per_s=1100.0), deadline_left_s=50 * HOUR), P)
    assert none.never_in_time
    assert none.why.endswith("and no size up to 16 GPUs meets it")
    gives = choose_size(sizes(JobSize(gpus=4, tokens_per_s=800.0), deadline_left_s=50 * HOUR), P)
    assert (gives.action, gives.size.gpus) == (Action.SHRINK, 4)
    slower = choose_size(sizes(JobSize(gpus=4, tokens_per_s=650.0), deadline_left_s=50 * HOUR), P)
    assert slower.never_in_time  # 158 h against 100 h and half of them more
    same = choose_size(sizes(JobSize(gpus=8, tokens_per_s=1020.0), deadline_left_s=50 * HOUR, lost_s=0.0), P)
    assert same.never_in_time


def test_a_late_job_that_may_still_be_in_time_keeps_its_gpus():
    """ln(101 / 100) / 0.02 is a chance of 69 %: nothing to gain from fewer GPUs, nor from 16 at even odds."""
    present = JobSize(gpus=8, tokens_per_s=1000.0, sigma=0.02)
    half, double = JobSize(gpus=4, tokens_per_s=990.0), JobSize(gpus=16, tokens_per_s=1020.0, sigma=0.1)
    choice = choose_size(replace(sizes(half, double, deadline_left_s=101 * HOUR, z=1.0), present=present), P)
    assert choice.never_in_time
    assert choice.why.endswith("no size up to 16 GPUs meets it for sure (69% likely at best)")


def test_a_job_is_not_hopeless_if_gpus_that_are_taken_now_would_save_it():
    half, free_later = JobSize(gpus=4, tokens_per_s=990.0), JobSize(gpus=16, tokens_per_s=4000.0)
    late = sizes(half, deadline_left_s=50 * HOUR)
    assert choose_size(late, P).size is half
    assert choose_size(replace(late, beyond=(free_later,)), P).never_in_time


def test_a_hopeless_job_gives_back_no_more_than_its_first_size_allows():
    """1.5 times the 100 h at 1,000 tokens/s of 8 GPUs, whatever the rate at 6 GPUs is."""
    six, four = JobSize(gpus=6, tokens_per_s=750.0), JobSize(gpus=4, tokens_per_s=650.0)
    late = replace(sizes(four, deadline_left_s=50 * HOUR, lost_s=0.0), present=six)
    assert choose_size(late, P).size is four
    assert choose_size(replace(late, first=PRESENT), P).never_in_time


class Curve:
    """The sizes given, whatever was measured."""

    def __init__(self, *every):
        self.every = every

    def sizes(self, *, gpus, tokens_per_s, steps):
        assert steps == 700
        return self.every


DP8, DP4 = Layout(dp=8), Layout(dp=4)


def found(*every, reading=None, failed=(), running=None, history=None, **limits):
    measured = Reading(window_s=HOUR, gpus=8, tokens_per_s=1000.0, window_steps=700, **(reading or {}))
    job = Running(gpus=8, layout=DP8, scaling=Curve(*every), confidence=0.9, **(running or {}))
    return candidate_sizes(measured, job, Limits(**limits), history or History(failed_gpus=failed), P)


AT = {n: JobSize(gpus=n, tokens_per_s=n * 100.0, layout=Layout(dp=n)) for n in (2, 4, 8, 12, 16)}


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({}, [2, 4, 12, 16]),
        ({"max_gpus": 12, "min_gpus": 4}, [4, 12]),
        ({"free_gpus": 4}, [2, 4, 12]),
        ({"free_gpus": 0, "max_gpus": 4}, [2, 4]),
        ({"failed": (16, 8, 4)}, [2, 12]),
    ],
    ids=["no limits", "least and most", "free GPUs", "never fewer than it has", "sizes that failed"],
)
def test_alternatives_are_within_the_limits_and_have_not_failed(changes, gpus):
    some = found(*AT.values(), **changes)
    assert some.present is AT[8]
    assert [s.gpus for s in some.alternatives] == gpus


def test_sizes_beyond_the_free_gpus_are_kept_apart_and_the_first_size_is_known():
    some = found(*AT.values(), free_gpus=4, history=History(first_gpus=16))
    assert [s.gpus for s in some.beyond] == [16]
    assert some.first is AT[16]
    assert found(*AT.values()).first is None


def test_without_limits_any_size_is_an_alternative():
    assert [s.gpus for s in found(JobSize(gpus=4096, tokens_per_s=1e5)).alternatives] == [4096]


def test_a_present_size_that_no_curve_has_is_the_measured_one():
    other = JobSize(gpus=8, tokens_per_s=900.0, layout=DP4)
    some = found(other)
    assert some.present == JobSize(gpus=8, tokens_per_s=1000.0, layout=DP8)
    assert some.alternatives == (other,)


@pytest.mark.parametrize(
    ("rate", "in_place"), [(1090.0, True), (1110.0, False)], ids=["within 10 %", "beyond"]
)
def test_of_two_layouts_the_one_in_place_is_preferred_unless_the_other_is_clearly_faster(rate, in_place):
    some = found(
        JobSize(gpus=16, tokens_per_s=rate, in_place=False, layout=DP4),
        JobSize(gpus=16, tokens_per_s=1000.0, in_place=True, layout=Layout(dp=16)),
    )
    assert [s.in_place for s in some.alternatives] == [in_place]


@pytest.mark.parametrize(
    ("given", "lost_s"),
    [
        ({"checkpoint_interval_s": 900.0}, 900.0),
        ({"checkpoint_interval_s": 900.0, "reading": {"checkpoint_age_s": 60.0}}, 60.0),
        ({"checkpoint_interval_s": 900.0, "saves_first": True}, 0.0),
        ({}, 0.0),
    ],
    ids=["all of an interval", "since the last one", "saved first", "no checkpoints"],
)
def test_lost_work_is_the_work_since_the_last_checkpoint(given, lost_s):
    assert found(**given).lost_s == lost_s


@pytest.mark.parametrize(
    ("reading", "limit", "waits"),
    [(True, None, True), (None, None, False), (True, False, False), (False, True, True)],
)
def test_the_executor_s_word_on_waiting_jobs_comes_before_the_reading_s(reading, limit, waits):
    some = found(reading={"others_waiting": reading}, others_waiting=limit)
    assert some.others_wait is waits
    assert some.z == pytest.approx(NormalDist().inv_cdf(0.9))
    assert (some.tokens_left, some.deadline_left_s) == (0.0, math.inf)
