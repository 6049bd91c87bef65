"""The bound of a replay, by brute force on small cases."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_engine.fleet.bound import bound
from rightsizer_engine.fleet.trace_jobs import HOUR_S, TraceJob, counts, relative_s

PARTS = 4


def job(*, exponent, slack, gpus=4, hours=8.0):
    deadline_s = None if slack is None else slack * hours * HOUR_S
    return TraceJob(
        key="a",
        submitted_s=0.0,
        duration_s=hours * HOUR_S,
        gpus=gpus,
        deadline_s=deadline_s,
        exponent=exponent,
    )


def schedules(some, most):
    """Seconds and GPU-hours of every way to do a job in equal parts of its work, each at any size."""
    for sizes in itertools.product(counts(some.gpus, most), repeat=PARTS):
        seconds = [some.duration_s / PARTS * relative_s(some.exponent, some.gpus, n) for n in sizes]
        yield sum(seconds), sum(s * n for s, n in zip(seconds, sizes, strict=True)) / HOUR_S


JOBS = st.builds(
    job,
    exponent=st.floats(0.0, 1.0),
    slack=st.one_of(st.none(), st.floats(0.2, 6.0)),
    gpus=st.sampled_from([1, 2, 3, 4, 6]),
)


@given(some=JOBS)
def test_no_schedule_beats_the_bound(some):
    found = bound([some], gpus=64)
    for seconds, hours in schedules(some, 2 * some.gpus):
        in_time = some.deadline_s is None or seconds <= some.deadline_s
        if in_time:
            assert found.missed == 0
        if in_time or found.missed:
            assert hours >= found.gpu_hours[0] * (1 - 1e-9)


@pytest.mark.parametrize(
    ("slack", "hours", "ends_h"),
    [(None, 16.0, 16.0), (1.0, 32.0, 8.0), (1.5, 21.657, 12.0), (0.4, 16.0, 16.0)],
    ids=["no deadline: one GPU", "as requested", "on one GPU, then on two", "never in time: one GPU"],
)
def test_the_bound_by_hand(slack, hours, ends_h):
    """On n GPUs the 8 h of 4 GPUs take 8 sqrt(4 / n) h: 16 GPU-hours on one, 22.6 on two, 32 on four."""
    found = bound([job(exponent=0.5, slack=slack)], gpus=64)
    assert found.gpu_hours[0] == pytest.approx(hours, rel=1e-4)
    assert found.finished_s[0] == pytest.approx(ends_h * HOUR_S)
    assert found.missed == (slack == 0.4)
