"""A trace replayed: static requests, null policies, resizing and staged openings, and the bound."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rightsizer_engine.fleet.bound import bound
from rightsizer_engine.fleet.simulation import replay
from rightsizer_engine.fleet.trace_jobs import POLICIES, ReplayRules, TraceJob, TraceScaling, missed

HOUR = 3600.0


def job(key="a", *, at=0.0, hours=10.0, gpus=8, slack=1.5, exponent=0.3, **changes):
    """A job submitted `at` hours, with `slack` times its duration to finish in."""
    deadline_s = None if slack is None else (at + slack * hours) * HOUR
    return TraceJob(
        key=key, submitted_s=at * HOUR, duration_s=hours * HOUR, gpus=gpus, deadline_s=deadline_s,
        exponent=exponent, **changes,
    )  # fmt: skip


def under(name, *jobs, gpus=8, rules=None):
    return replay(jobs, gpus=gpus, policy=POLICIES[name], rules=rules)


def test_static_requests_wait_in_line():
    found = under("static", job("a"), job("b", at=1.0), job("c", at=2.0, gpus=1))
    assert [s / HOUR for s in found.started_s] == [0.0, 10.0, 20.0]
    assert found.gpu_hours == (80.0, 80.0, 10.0)
    assert found.missed == 2
    assert max(found.timeline.gpus) == 8


@pytest.mark.parametrize(
    ("name", "hours"), [("one GPU each", 10 * 8**0.3), ("half of each", 4 * 10 * 2**0.3)]
)
def test_null_policies_open_small_and_never_resize(name, hours):
    found = under(name, job())
    assert found.gpu_hours[0] == pytest.approx(hours)
    assert found.resizes == 0


def test_a_job_whose_gpus_hardly_help_is_shrunk_and_still_in_time():
    asked, ours = under("static", job(slack=3.0)), under("resize, Always", job(slack=3.0))
    assert asked.missed == ours.missed == 0
    assert ours.resizes >= 1
    assert sum(ours.gpu_hours) < 0.8 * sum(asked.gpu_hours)


def test_a_job_that_scales_and_is_late_grows():
    late = job(slack=0.8, exponent=0.95, gpus=4)
    assert under("static", late).missed == 1
    ours = under("resize, OnPressure", late)
    assert (ours.missed, ours.decisions["grow"]) == (0, 1)


def test_under_pressure_only_those_shrink_for_whom_someone_waits():
    assert under("resize, OnPressure", job(slack=3.0)).resizes == 0
    assert under("resize, OnPressure", job(slack=3.0), job("b", at=0.1)).resizes >= 1


def test_a_staged_job_opens_as_its_deadline_needs():
    tight, loose = job(slack=0.6, exponent=0.9, gpus=4), job(slack=4.0, exponent=0.9, gpus=4)
    assert under("staged, OnPressure", tight).timeline.gpus[0] == 8
    assert under("staged, OnPressure", loose).timeline.gpus[0] == 1
    assert under("staged, OnPressure", job(slack=None)).timeline.gpus[0] == 8


def test_a_staged_opening_that_was_too_small_is_corrected_at_the_first_look():
    slower = job(slack=1.6, hours=30.0, exponent=0.9, rate_error_ln=0.3)
    found = under("staged, OnPressure", slower, gpus=16)
    assert (found.missed, found.resizes) == (0, 1)


def test_an_opening_takes_at_most_the_free_gpus():
    first, second = job("a", gpus=4, slack=None), job("b", at=1.0, gpus=4, slack=0.6)
    found = under("staged, OnPressure", first, second)
    assert found.started_s[1] == 1.0 * HOUR
    assert max(found.timeline.gpus) == 8


def test_restarts_are_paid_for():
    rules = [
        replace(ReplayRules(), limits=replace(ReplayRules().limits, restart_s=s)) for s in (60.0, 1800.0)
    ]
    quick, slow = (under("resize, Always", job(slack=3.0), rules=some) for some in rules)
    assert 0 < quick.lost_gpu_hours < slow.lost_gpu_hours


def test_the_policy_has_the_curve_through_its_measurements():
    curve = TraceScaling(exponent=0.5, exponent_sigma=0.1, counts=(1, 2, 4, 8))
    sizes = {s.gpus: s for s in curve.sizes(gpus=8, tokens_per_s=0.9, steps=100)}
    assert sizes[8].tokens_per_s == pytest.approx(0.9)
    assert sizes[2].tokens_per_s == pytest.approx(0.45)
    assert sizes[8].sigma < sizes[4].sigma < sizes[2].sigma


JOBS = st.lists(
    st.builds(
        job,
        st.uuids().map(str),
        at=st.floats(0.0, 50.0),
        hours=st.floats(0.01, 40.0),
        gpus=st.sampled_from([1, 2, 4, 8, 12]),
        slack=st.one_of(st.none(), st.floats(0.3, 4.0)),
        exponent=st.floats(0.0, 1.0),
        measured_error_ln=st.floats(-0.05, 0.05),
        rate_error_ln=st.floats(-0.3, 0.3),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda j: j.key,
).map(lambda jobs: sorted(jobs, key=lambda j: j.submitted_s))


HALF_IS_ENOUGH = job("0" * 8, gpus=12, slack=1.01 * 2**0.3)
"""Six GPUs, no size that a resize chooses, meet the deadline."""


@example(jobs=[HALF_IS_ENOUGH], gpus=12, name="half of each")
@given(jobs=JOBS, gpus=st.sampled_from([12, 16, 64]), name=st.sampled_from(sorted(POLICIES)))
def test_every_job_ends_no_gpu_is_used_twice_and_no_policy_beats_the_bound(jobs, gpus, name):
    found, least = under(name, *jobs, gpus=gpus), bound(jobs, gpus=gpus)
    assert all(end > start for start, end in zip(found.started_s, found.finished_s, strict=True))
    assert all(start >= j.submitted_s for start, j in zip(found.started_s, jobs, strict=True))
    assert max(found.timeline.gpus) <= gpus
    assert found.timeline.gpus[-1] == 0
    assert least.missed <= found.missed
    for i, some in enumerate(jobs):
        late, hopeless = (missed([some], [f.finished_s[i]]) for f in (found, least))
        if late <= hopeless:
            assert found.gpu_hours[i] >= least.gpu_hours[i] * (1 - 1e-9)
