"""A trace replayed: static requests, the policy, and the bound that no policy beats."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer.fleet.simulation import ReplayRules, TraceJob, oracle, replay, static
from rightsizer.fleet.trace_jobs import TraceScaling, relative_s
from rightsizer.resize.types import Pressure

HOUR = 3600.0


def job(key="a", *, at=0.0, hours=10.0, gpus=8, slack=1.5, serial=0.9, **changes):
    """A job submitted `at` hours, with `slack` times its duration to finish in."""
    deadline_s = None if slack is None else (at + slack * hours) * HOUR
    return TraceJob(
        key=key, submitted_s=at * HOUR, duration_s=hours * HOUR, gpus=gpus, deadline_s=deadline_s,
        serial=serial, believed_serial=serial, busy=1.0 - serial, **changes,
    )  # fmt: skip


def always(**changes):
    rules = ReplayRules()
    return replace(rules, limits=replace(rules.limits, **changes))


def test_static_requests_wait_in_line():
    found = static([job("a"), job("b", at=1.0), job("c", at=2.0, gpus=1)], gpus=8)
    assert [s / HOUR for s in found.started_s] == [0.0, 10.0, 20.0]
    assert found.gpu_hours == (80.0, 80.0, 10.0)
    assert found.missed == 2
    assert max(found.timeline.gpus) == 8


def test_a_job_whose_gpus_hardly_help_is_shrunk_and_still_in_time():
    asked, ours = ([job()], static([job()], gpus=8)), replay([job()], gpus=8)
    assert asked[1].missed == ours.missed == 0
    assert ours.resizes >= 1
    assert sum(ours.gpu_hours) < 0.7 * sum(asked[1].gpu_hours)


def test_a_job_that_scales_and_is_late_grows():
    late = job(slack=0.8, serial=0.05, gpus=4)
    assert static([late], gpus=8).missed == 1
    ours = replay([late], gpus=8)
    assert (ours.missed, ours.decisions["grow"]) == (0, 1)


def test_under_pressure_only_those_shrink_for_whom_someone_waits():
    rules = always(pressure=Pressure.ON_PRESSURE)
    assert replay([job()], gpus=8, rules=rules).resizes == 0
    assert replay([job(), job("b", at=0.1)], gpus=8, rules=rules).resizes >= 1


def test_restarts_are_paid_for():
    some = [job(slack=3.0)]
    quick, slow = (replay(some, gpus=8, rules=always(restart_s=s)) for s in (60.0, 1800.0))
    assert quick.lost_gpu_hours < slow.lost_gpu_hours
    assert slow.lost_gpu_hours > 0


def test_the_oracle_mixes_two_sizes_to_end_on_the_deadline():
    found = oracle([job(serial=0.5, slack=1.25, gpus=2)], gpus=8)
    assert found.finished_s[0] == pytest.approx(12.5 * HOUR)
    assert found.gpu_hours[0] == pytest.approx(0.5 * 10 * 2 + 0.5 * 15 * 1)


def test_the_policy_sees_the_curve_through_what_it_measured():
    curve = TraceScaling(requested=8, serial=0.5, counts=(1, 2, 4, 8), sigma=0.1)
    sizes = {s.gpus: s for s in curve.sizes(gpus=8, tokens_per_s=0.9, steps=100)}
    assert sizes[8].tokens_per_s == pytest.approx(0.9)
    assert sizes[4].tokens_per_s == pytest.approx(0.9 / relative_s(0.5, 8, 4))
    assert sizes[8].sigma < sizes[4].sigma


JOBS = st.lists(
    st.builds(
        job,
        st.uuids().map(str),
        at=st.floats(0.0, 50.0),
        hours=st.floats(0.01, 40.0),
        gpus=st.sampled_from([1, 2, 4, 8, 12]),
        slack=st.one_of(st.none(), st.floats(0.3, 4.0)),
        serial=st.floats(0.001, 0.999),
        measured_error_ln=st.floats(-0.05, 0.05),
        rate_error_ln=st.floats(-0.3, 0.3),
    ),
    min_size=1,
    max_size=15,
    unique_by=lambda j: j.key,
).map(lambda jobs: sorted(jobs, key=lambda j: j.submitted_s))


@given(jobs=JOBS, gpus=st.sampled_from([12, 16, 64]))
def test_every_job_ends_no_gpu_is_used_twice_and_the_oracle_is_a_bound(jobs, gpus):
    ours, bound = replay(jobs, gpus=gpus), oracle(jobs, gpus=gpus)
    assert all(end > start for start, end in zip(ours.started_s, ours.finished_s, strict=True))
    assert all(start >= j.submitted_s for start, j in zip(ours.started_s, jobs, strict=True))
    assert max(ours.timeline.gpus) <= gpus
    assert ours.timeline.gpus[-1] == 0
    assert bound.missed <= ours.missed
    for some, end_s, hours, least in zip(jobs, ours.finished_s, ours.gpu_hours, bound.gpu_hours, strict=True):
        if some.deadline_s is None or end_s <= some.deadline_s:
            assert hours >= least * (1 - 1e-9)
