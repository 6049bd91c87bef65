"""Marks in the status and back, and the reading of a job that stands still."""

import pytest

from rightsizer_engine.domain.reading import Phase
from rightsizer_launch.running.marks import Mark
from rightsizer_operator.measure.samples import marks_of_samples, newest_reading, samples_of


def marks(*, until_s, step_s=10.0, stops_s=1e9):
    """A mark every 15 s of a run that makes steps until it stops."""
    times = (15.0 * n for n in range(int(until_s / 15.0) + 1))
    return tuple(
        Mark(
            time_s=at_s,
            step=int(min(at_s, stops_s) / step_s),
            tokens=100.0 * int(min(at_s, stops_s) / step_s),
            world=8,
            run=(1, 0),
            covers_s=15.0,
            saving_s=0.0,
        )
        for at_s in times
    )


def read(run):
    return newest_reading(run, now_s=run[-1].time_s, window_s=11_040.0, stall_s=600.0, warm_up_s=300.0)


def test_a_training_job_is_read_over_the_whole_window():
    reading = read(marks(until_s=20_000.0))
    assert reading.window_s >= 11_040.0
    assert reading.tokens_per_s == pytest.approx(10.0, rel=0.01)


def test_a_job_that_made_no_step_for_the_shortest_window_has_no_rate():
    reading = read(marks(until_s=20_000.0, stops_s=19_300.0))
    assert (reading.tokens_per_s, reading.window_s) == (0.0, 600.0)


@pytest.mark.parametrize("step_s", [700.0, 1500.0])
def test_a_job_with_long_steps_does_not_stand_still(step_s):
    assert read(marks(until_s=20_000.0, step_s=step_s)).tokens_per_s > 0.0


def test_samples_in_the_status_read_as_the_marks_that_they_were():
    run = marks(until_s=20_000.0)
    samples = samples_of(run, keep_s=22_680.0, ahead_s=1e9)
    back = marks_of_samples(samples, ahead_s=1e9)
    assert len(samples) <= 48
    assert (back[0], back[-1].tokens) == (run[0], run[-1].tokens)
    assert read(back).tokens_per_s == pytest.approx(read(run).tokens_per_s, rel=0.01)
    assert read(back).coverage == 1.0


def test_samples_are_of_the_present_run_only():
    before = marks(until_s=3000.0)
    after = tuple(Mark(time_s=3015.0 + n, step=n, tokens=100.0 * n, world=4, run=(1, 0)) for n in range(3))
    assert {sample["workers"] for sample in samples_of((*before, *after), keep_s=1e4, ahead_s=0.0)} == {4}


def test_an_unrecognised_phase_is_unknown():
    (sample,) = samples_of(marks(until_s=0.0), keep_s=1e4, ahead_s=0.0)
    (mark,) = marks_of_samples([dict(sample) | {"phase": "dancing"}], ahead_s=0.0)
    assert mark.phase is Phase.UNKNOWN
