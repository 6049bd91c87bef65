"""The policy's decision on a plan as its status describes it."""

import datetime as dt
from dataclasses import replace

import pytest

from rightsizer_engine.domain.reading import Phase, Reading
from rightsizer_engine.resize.types import Action, JobSize, Mode, Pressure
from rightsizer_operator.reconcile.parsed_plan import parsed_plan
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.reconcile.resize_advice import (
    ResizeContext,
    advise,
    history_of_status,
    layout_before,
    recorded_starts_s,
)
from rightsizer_operator.values.resize import ResizeRecord
from rightsizer_operator.values.settings import OperatorSettings

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
FREE = {
    "resources": {"gpus": None},
    "elasticity": {"mode": "Auto"},
    "launch": {"checkpoint": {"interval": "1m"}},
}
BUSY = Reading(
    window_s=600.0, age_s=5.0, coverage=1.0, samples=41, gpus=2, tokens_per_s=1000.0, tokens_done=1e6,
    window_steps=100, phase=Phase.TRAINING,
)  # fmt: skip


class Sublinear:
    """Twice the GPUs, less than twice the rate."""

    def sizes(self, *, gpus, tokens_per_s, steps):
        return tuple(JobSize(gpus=n, tokens_per_s=tokens_per_s * (n / gpus) ** 0.7) for n in (1, 2, 4))


@pytest.fixture
def judged(fake_cluster):
    """judged(hours=..., ...): what is said of a plan whose 9M tokens take 2.5 h on its two GPUs."""

    def make(*, hours, waiting=True, settings=None):
        raw = fake_cluster(FREE).settle().plan
        status, due = PersistedStatus.of(raw["status"]), NOW + dt.timedelta(hours=hours)
        sized = replace(status.sized, gpus=2, layout=replace(status.sized.layout, dp=2))
        return advise(
            parsed_plan(raw),
            replace(status, deadline=due, sized=sized),
            reading=BUSY,
            context=ResizeContext(free_gpus=8, others_waiting=waiting, trained_s=1200.0, restart_s=120.0),
            scaling=Sublinear(),
            settings=settings or OperatorSettings(),
            now=NOW,
        )

    return make


@pytest.mark.parametrize(("hours", "action"), [(20, Action.SHRINK), (3, Action.KEEP), (2, Action.GROW)])
def test_a_plan_that_names_no_gpu_type_is_judged_by_its_pace(judged, hours, action):
    found = judged(hours=hours)
    assert (found.action, found.act) == (action, action is not Action.KEEP)


@pytest.mark.parametrize(
    ("waiting", "give_back", "act"),
    [
        (True, Pressure.ON_PRESSURE, True),
        (False, Pressure.ON_PRESSURE, False),
        (False, Pressure.ALWAYS, True),
    ],
    ids=["waited-for", "nobody-waits", "always"],
)
def test_gpus_are_given_back_if_the_site_s_setting_allows_it(judged, waiting, give_back, act):
    found = judged(hours=20, waiting=waiting, settings=OperatorSettings(give_back=give_back))
    assert (found.action, found.act) == (Action.SHRINK, act)


@pytest.mark.parametrize(
    ("caps", "act"),
    [
        ({}, True),
        ({"": Mode.RECOMMEND}, False),
        ({"": Mode.RECOMMEND, "team": Mode.AUTO}, True),
        ({"team": Mode.RECOMMEND}, False),
        ({"other": Mode.RECOMMEND}, True),
    ],
    ids=["none", "everywhere", "but-here", "here", "elsewhere"],
)
def test_a_site_caps_the_mode_by_namespace(judged, caps, act):
    assert judged(hours=2, settings=OperatorSettings(caps=caps)).act is act


def test_recorded_starts_are_those_that_trained_and_began_in_time():
    """The first took 90 s; the second never trained; the third came after the end of the request."""
    rows = [
        ResizeRecord(at=NOW, from_gpus=1, to_gpus=2, reason="", trained_at=NOW + dt.timedelta(seconds=90)),
        ResizeRecord(at=NOW + dt.timedelta(minutes=10), from_gpus=2, to_gpus=3, reason=""),
        ResizeRecord(
            at=NOW + dt.timedelta(hours=1),
            from_gpus=3,
            to_gpus=4,
            reason="",
            trained_at=NOW + dt.timedelta(minutes=61),
        ),
    ]
    until_s = dt.datetime(2026, 11, 21, 12, 30, tzinfo=dt.UTC).timestamp()
    assert recorded_starts_s(PersistedStatus(resizes=tuple(rows)), until_s=until_s) == (90.0,)


def test_a_mark_has_the_layout_of_the_resize_that_ended_it_or_the_present_one():
    rows = [
        {"at": "2026-01-01T00:00:00Z", "fromGPUs": 2, "toGPUs": 4, "fromLayout": "DP 2"},
        {"at": "2026-01-01T02:00:00Z", "fromGPUs": 4, "toGPUs": 2, "fromLayout": "TP 2 x DP 2"},
    ]
    status = PersistedStatus.of({"resizes": rows})
    began_s = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()
    found = [layout_before(status, began_s + hour * 3600) for hour in (-1, 1, 3)]
    assert found == ["DP 2", "TP 2 x DP 2", ""]
    assert history_of_status(status).first_gpus == 2
