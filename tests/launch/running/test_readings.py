"""The inputs of the resize policy from records: window, rate, coverage, restart price, history."""

import math
from dataclasses import replace

import pytest

from rightsizer_engine.domain.reading import Phase, Reading
from rightsizer_launch.running.counters import with_gpu_counters
from rightsizer_launch.running.limits import PRIOR_RESTART_S, restart_s, seconds_left, tokens_left
from rightsizer_launch.running.marks import Mark, marks_of, pruned, start_durations_s, trained_s
from rightsizer_launch.running.readings import reading_of
from rightsizer_launch.running.size_history import SizeChange, history_of
from rightsizer_launch.worker.progress import Record


def start(time_s, step=0, *, world=4, restart=0):
    return Record(event="start", time=time_s, step=step, tokens=1000.0 * step, world=world, restart=restart)


def steps(first, last, *, began_s, step_s=1.0, world=4, restart=0):
    return [
        Record(
            event="step",
            time=began_s + (n - first + 1) * step_s,
            step=n,
            tokens=1000.0 * n,
            step_s=step_s,
            world=world,
            restart=restart,
        )
        for n in range(first, last + 1)
    ]


def read(records, *, now_s, window_s=60.0, warm_up_s=10.0):
    return reading_of(marks_of(records), now_s=now_s, window_s=window_s, warm_up_s=warm_up_s)


STEADY = [start(5.0), *steps(1, 200, began_s=10.0)]


def test_a_steady_run_reads_its_rate_over_the_newest_window():
    reading = read(STEADY, now_s=212.0)
    assert (reading.window_s, reading.window_steps, reading.samples) == (60.0, 60, 61)
    assert (reading.tokens_per_s, reading.coverage, reading.gpus) == (1000.0, 1.0, 4)
    assert (reading.age_s, reading.tokens_done, reading.phase) == (2.0, 200_000.0, Phase.TRAINING)


def test_a_slow_warm_up_is_not_in_the_rate():
    slow = [start(0.0), *steps(1, 3, began_s=0.0, step_s=10.0), *steps(4, 43, began_s=30.0)]
    assert read(slow, now_s=70.0, warm_up_s=30.0).tokens_per_s == 1000.0


@pytest.mark.parametrize("warm_up_s", [0.0, 1.0])
def test_the_first_two_steps_are_never_in_the_rate_of_a_warm_run(warm_up_s):
    slow = [start(0.0), *steps(1, 2, began_s=0.0, step_s=30.0), *steps(3, 12, began_s=60.0)]
    assert read(slow, now_s=70.0, warm_up_s=warm_up_s).tokens_per_s == 1000.0


def test_a_run_without_a_step_since_its_warm_up_has_no_rate():
    assert read(STEADY[:3], now_s=100.0).tokens_per_s is None


def test_a_run_without_progress_since_its_first_step_is_read_by_time():
    marks = [Mark(time_s=float(t), step=20, tokens=2e4, world=1, covers_s=2.0) for t in range(10, 101, 2)]
    reading = reading_of(marks, now_s=100.0, window_s=24.0, warm_up_s=5.0)
    assert (reading.window_s, reading.coverage, reading.window_steps) == (24.0, 1.0, 0)
    assert reading.tokens_per_s == 0.0


def test_a_run_that_is_warming_up_is_read_in_full():
    assert read(STEADY[:8], now_s=18.0).window_steps == 6


def test_saves_are_left_out_of_the_rate():
    saved = Record(event="checkpoint", time=120.0, step=100, tokens=1e5, world=4)
    reading = read([*STEADY[:101], saved, *steps(101, 130, began_s=120.0)], now_s=150.0)
    assert (reading.tokens_per_s, reading.coverage) == (1000.0, 1.0)
    assert reading.checkpoint_fraction == pytest.approx(10.0 / 60.0)
    assert reading.checkpoint_age_s == 30.0


def test_a_reading_names_its_tokens_its_span_and_the_time_that_it_saved():
    """130 steps, the last 60 s of them from step 80: 50 steps of 1,000 tokens, and 10 s at a checkpoint."""
    saved = Record(event="checkpoint", time=120.0, step=100, tokens=1e5, world=4)
    reading = read([*STEADY[:101], saved, *steps(101, 130, began_s=120.0)], now_s=150.0)
    assert reading.queries[0].endswith(": 50,000 tokens in 60 s, 10 s of it saving")


def test_waits_for_data_add_up_from_nothing():
    waits = [start(5.0), *(replace(record, data_wait_s=0.5) for record in steps(1, 2, began_s=10.0))]
    assert [mark.data_wait_s for mark in marks_of(waits)] == [None, 0.5, 1.0]


def test_a_window_of_saving_alone_has_no_rate():
    saved = Record(event="checkpoint", time=170.0, step=100, tokens=1e5, world=4)
    reading = read([*STEADY[:101], saved], now_s=170.0)
    assert (reading.tokens_per_s, reading.checkpoint_fraction) == (None, 1.0)


def test_steps_whose_records_are_missing_lower_the_coverage_alone():
    reading = read([record for record in STEADY if not 160 < record.step <= 190], now_s=210.0)
    assert reading.coverage == 0.5
    assert reading.tokens_per_s == 1000.0


def test_time_between_consecutive_steps_is_covered_whatever_it_was_spent_on():
    evaluated = [*STEADY, *steps(201, 220, began_s=230.0)]
    assert read(evaluated, now_s=250.0).coverage == 1.0


def test_a_window_never_reaches_over_a_change_of_world_size():
    smaller = [*STEADY, start(215.0, 200, world=2), *steps(201, 210, began_s=220.0, world=2)]
    reading = read(smaller, now_s=231.0, warm_up_s=1.0)
    assert (reading.gpus, reading.window_steps) == (2, 8)
    assert trained_s(marks_of(smaller), now_s=231.0) == 10.0


def test_records_before_the_first_step_are_a_start():
    reading = read(STEADY[:1], now_s=6.0)
    assert (reading.phase, reading.window_s) == (Phase.STARTUP, None)
    assert trained_s(marks_of(STEADY[:1]), now_s=6.0) is None


def test_no_records_are_an_unknown_reading():
    assert read([], now_s=0.0) == Reading()


@pytest.mark.parametrize(("waits_s", "share"), [(None, None), (0.0, 0.0), (0.4, 0.4)])
def test_waits_for_data_are_a_share_of_the_window_if_the_script_times_them(waits_s, share):
    timed = [replace(record, data_wait_s=waits_s) for record in STEADY]
    found = read(timed, now_s=210.0).data_wait_fraction
    assert found == (None if share is None else pytest.approx(share))


def test_marks_continue_after_earlier_ones():
    first = marks_of(STEADY[:50])
    assert [*first, *marks_of(STEADY[50:], after=first[-1])] == marks_of(STEADY)


def test_a_start_counts_from_its_launch_or_from_the_last_mark_before_it():
    again = [*STEADY, start(240.0, 200, restart=1), *steps(201, 210, began_s=249.0, restart=1)]
    marks = marks_of(again)
    assert start_durations_s(marks) == (40.0,)
    assert start_durations_s(marks, [1.0]) == (10.0, 40.0)
    assert start_durations_s(marks, [1.0, 230.0]) == (10.0, 20.0)


def test_a_start_that_failed_before_its_first_step_is_part_of_the_next_one():
    broken = [*STEADY, start(220.0, 200, restart=1), start(240.0, 200, restart=2)]
    marks = marks_of([*broken, *steps(201, 203, began_s=249.0, restart=2)])
    assert start_durations_s(marks) == (40.0,)


GAP = [*steps(1, 500, began_s=10.0), *steps(601, 1000, began_s=610.0)]


@pytest.mark.parametrize("records", [[start(5.0), *steps(1, 1000, began_s=10.0)], GAP], ids=["whole", "gap"])
def test_pruning_keeps_rate_coverage_and_the_start_in_few_marks(records):
    marks, few = marks_of(records), ()
    for mark in marks:
        few = pruned((*few, mark), keep_s=800.0, resolution=20)
    assert len(few) < 150
    every, kept = (reading_of(each, now_s=1012.0, window_s=800.0, warm_up_s=10.0) for each in (marks, few))
    assert kept.tokens_per_s == pytest.approx(every.tokens_per_s, rel=0.01)
    assert kept.coverage == pytest.approx(every.coverage, abs=0.01)
    assert trained_s(few, now_s=1012.0) == trained_s(marks, now_s=1012.0)


def test_a_job_that_restarts_forever_leaves_few_marks():
    marks = ()
    for n in range(500):
        marks = pruned(
            (*marks, *marks_of([start(10.0 * n, restart=n), *steps(1, 2, began_s=10.0 * n, restart=n)])),
            keep_s=1e9,
        )
    assert len(marks) <= 1000


@pytest.mark.parametrize(
    ("durations_s", "price_s"),
    [((), PRIOR_RESTART_S), ((30.0,), 30.0), ((20.0, 30.0, 900.0), 30.0), ((0.1,), 5.0)],
    ids=["prior", "one", "median", "least"],
)
def test_the_restart_price_is_measured_or_the_prior(durations_s, price_s):
    assert restart_s(durations_s) == price_s


def test_rollbacks_count_for_the_cool_down_and_exclude_the_size_that_failed():
    history = history_of([SizeChange(at_s=9.0, failed_gpus=8), SizeChange(at_s=5.0)])
    assert (history.last_resize_s, history.failed_gpus) == (9.0, (8,))


def test_the_first_size_is_the_one_before_the_first_resize():
    changes = [SizeChange(at_s=9.0, from_gpus=2), SizeChange(at_s=5.0, from_gpus=4)]
    assert history_of(changes).first_gpus == 4
    assert history_of([]).first_gpus is None


@pytest.mark.parametrize("target", [math.inf, math.nan])
def test_a_target_that_is_not_finite_leaves_the_work_unknown(target):
    assert tokens_left(target, 5.0) is None
    assert tokens_left(10.0, None) is None


@pytest.mark.parametrize("deadline_s", [None, math.nan, math.inf])
def test_a_deadline_that_is_not_finite_is_none(deadline_s):
    assert seconds_left(deadline_s, now_s=1.0) is None


def test_gpu_counters_fill_only_what_the_job_does_not_know():
    counters = Reading(tokens_per_s=9.0, gpu_busy_max=0.5, window_s=60.0, queries=("q",))
    both = with_gpu_counters(Reading(tokens_per_s=5.0), counters)
    assert (both.tokens_per_s, both.gpu_busy_max, both.window_s, both.queries) == (5.0, 0.5, None, ("q",))


@pytest.mark.parametrize(
    ("own_busy", "counters_s", "window_s"),
    [(None, 300.0, 300.0), (None, 1800.0, 1800.0), (0.4, 1800.0, 900.0), (None, None, 0.0)],
    ids=["shorter", "longer", "own-metrics-too", "no-window"],
)
def test_gpu_counters_keep_their_own_window(own_busy, counters_s, window_s):
    own = Reading(window_s=900.0, age_s=5.0, coverage=1.0, gpu_busy_mean=own_busy)
    counters = Reading(window_s=counters_s, age_s=40.0, coverage=0.8, gpu_busy_max=0.0)
    both = with_gpu_counters(own, counters)
    assert (both.window_s, both.gpu_window_s) == (900.0, window_s)
    assert (both.age_s, both.coverage) == (40.0, 0.8)


@pytest.mark.parametrize(("done", "left"), [(4.0, 6.0), (12.0, 0.0)], ids=["part", "more"])
def test_tokens_left_are_those_not_trained(done, left):
    assert tokens_left(10.0, done) == left


@pytest.mark.parametrize("by_s", [3600.0, -3600.0], ids=["forwards", "back"])
def test_a_clock_that_is_set_changes_no_rate_and_counts_as_no_start(by_s):
    set_s = [by_s if record.step > 100 else 0.0 for record in STEADY]
    records = [
        replace(record, time=7200.0 + record.time + s, uptime_s=record.time)
        for record, s in zip(STEADY, set_s, strict=True)
    ]
    reading = read(records, now_s=7412.0 + by_s)
    assert (reading.tokens_per_s, reading.coverage, reading.age_s) == (1000.0, 1.0, 2.0)
    assert start_durations_s(marks_of(records)) == start_durations_s(marks_of(STEADY))
