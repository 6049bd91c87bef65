"""Properties of every decision on a running job, for any measurement."""

import itertools
import math
from dataclasses import dataclass, field, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_engine.domain.reading import Phase, Reading
from rightsizer_engine.resize.policy import decide
from rightsizer_engine.resize.types import Action, History, JobSize, Limits, Mode, Pressure, Running, Visit

HOUR = 3600.0
COUNTS = (1, 2, 4, 8, 16, 32, 64)
RESIZES = {Action.GROW, Action.SHRINK, Action.RELAYOUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Each doubling multiplies the rate by `doubling`."""

    doubling: float = 1.8
    sigma: float = 0.05

    def rate(self, gpus):
        return 100.0 * self.doubling ** math.log2(gpus)

    def sizes(self, *, gpus, tokens_per_s, steps):
        scale = tokens_per_s / self.rate(gpus)
        return tuple(
            JobSize(gpus=n, tokens_per_s=scale * self.rate(n), sigma=0.02 if n == gpus else self.sigma)
            for n in COUNTS
        )


CURVES = st.builds(Curve, doubling=st.floats(1.1, 2.0), sigma=st.floats(0.0, 0.3))


def reading(gpus, rate):
    return Reading(
        window_s=2 * HOUR,
        age_s=10.0,
        coverage=1.0,
        samples=240,
        gpus=gpus,
        tokens_per_s=rate,
        steps=9000,
        window_steps=500,
        gpu_busy_max=0.9,
        phase=Phase.TRAINING,
        checkpoint_age_s=0.0,
        others_waiting=True,
    )


LIMITS = Limits(mode=Mode.AUTO, max_gpus=64, checkpoint_interval_s=HOUR, cool_down_s=4 * HOUR, restart_s=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A job on `gpus` with `hours` of work at its present rate, and `slack` times as long to do it."""

    curve: Curve
    gpus: int
    hours: float
    slack: float
    pressure: Pressure

    @property
    def rate(self):
        return self.curve.rate(self.gpus)

    def running(self, *, rate=None, slack=None):
        return Running(
            gpus=self.gpus,
            scaling=self.curve,
            tokens_left=self.hours * HOUR * (rate or self.rate),
            deadline_left_s=(slack or self.slack) * self.hours * HOUR,
            trained_s=1e6,
        )

    def decided(self, *, rate=None, slack=None, **seen):
        """The decision with some inputs changed."""
        some = replace(reading(self.gpus, rate or self.rate), **seen)
        limits = replace(LIMITS, pressure=self.pressure)
        return decide(some, self.running(rate=rate, slack=slack), limits, History(), now_s=0.0)


JOBS = st.builds(
    Setting,
    curve=CURVES,
    gpus=st.sampled_from(COUNTS),
    hours=st.floats(1.0, 500.0),
    slack=st.floats(0.05, 10.0),
    pressure=st.sampled_from(list(Pressure)),
)

NEEDED = ("window_s", "age_s", "coverage", "gpus", "tokens_per_s", "window_steps")


@given(job=JOBS, field=st.sampled_from(NEEDED), bad=st.sampled_from([None, math.nan, -1.0, math.inf]))
def test_missing_data_never_triggers_a_resize(job, field, bad):
    found = job.decided(**{field: bad})
    assert found.action not in RESIZES
    assert not found.act


@given(job=JOBS, age_s=st.floats(301.0, 1e9))
def test_stale_data_never_triggers_a_resize(job, age_s):
    assert job.decided(age_s=age_s).action is Action.KEEP


SHARES = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
NAMES = ("gpu_busy_mean", "gpu_busy_max", "tensor_active", "memory_active", "power_fraction")


@given(job=JOBS, shares=st.fixed_dictionaries(dict.fromkeys(NAMES, SHARES)))
def test_utilisation_alone_never_resizes(job, shares):
    """A resize that the rate calls for may be put off by what else is seen; none comes of that alone."""
    plain, found = job.decided(), job.decided(**shares)
    if found.action in RESIZES:
        assert (found.action, found.gpus) == (plain.action, plain.gpus)


SHORT_S = st.one_of(st.floats(0.0, 0.99 * LIMITS.least_window_s), st.sampled_from([math.nan, -1.0, math.inf]))


@given(job=JOBS, rate=st.sampled_from([0.0, 100.0]), window_s=SHORT_S, shares=st.fixed_dictionaries(
    dict.fromkeys(NAMES, st.floats(0.0, 1.0))
))  # fmt: skip
def test_no_decision_rests_on_gpu_metrics_of_less_than_the_least_window(job, rate, window_s, shares):
    plain = job.decided(tokens_per_s=rate, **dict.fromkeys(NAMES))
    found = job.decided(tokens_per_s=rate, gpu_window_s=window_s, **shares)
    assert replace(found, evidence=()) == replace(plain, evidence=())


def test_idle_gpus_are_flagged_once_their_window_is_long_enough():
    idle = {"tokens_per_s": 0.0, "gpu_busy_max": 0.0, "power_fraction": 0.1}
    windows_s = (LIMITS.least_window_s - 1.0, LIMITS.least_window_s)
    decisions = [SOUND.decided(gpu_window_s=window_s, **idle) for window_s in windows_s]
    assert [decision.action for decision in decisions] == [Action.KEEP, Action.FLAG]
    assert "GPU metrics over 10m" in decisions[1].evidence


@given(job=JOBS, measured=st.floats(0.2, 3.0))
def test_no_shrink_below_what_the_deadline_needs_at_the_measured_rate(job, measured):
    rate = measured * job.rate
    found, left = job.decided(rate=rate), job.running(rate=rate)
    if found.action is Action.SHRINK:
        needs_s = left.tokens_left / (measured * job.curve.rate(found.gpus)) + LIMITS.restart_s
        assert needs_s <= left.deadline_left_s
        assert found.gpus * 2 >= job.gpus
        assert found.confidence >= 0.9


@given(job=JOBS, more=st.floats(1.0, 5.0))
def test_more_slack_never_takes_more_gpus(job, more):
    """As long as there is a size that meets the deadline: a hopeless one changes nothing."""
    tight, loose = job.decided(), job.decided(slack=job.slack * more)
    if tight.action is not Action.FLAG or "no size" not in tight.reason:
        assert loose.gpus <= tight.gpus


@dataclass(slots=True)
class Job:
    """A job under the policy, its metrics as they come."""

    curve: Curve
    gpus: int
    tokens_left: float
    deadline_s: float
    history: History = field(default_factory=History)
    trained_since_s: float = -1e6
    changes: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, some):
        left = some.running()
        return cls(some.curve, some.gpus, left.tokens_left, left.deadline_left_s)

    def step(self, now_s, limits, rate, **seen):
        """Decide once; the action."""
        job = Running(
            gpus=self.gpus,
            scaling=self.curve,
            tokens_left=self.tokens_left,
            deadline_left_s=self.deadline_s - now_s,
            trained_s=now_s - self.trained_since_s,
        )
        some = replace(reading(self.gpus, rate), **seen)
        found = decide(some, job, limits, self.history, now_s=now_s)
        if found.act:
            self.changes.append((self.gpus, found.gpus))
            self.history = replace(
                self.history,
                last_resize_s=now_s,
                first_gpus=self.history.first_gpus or self.gpus,
                visited=(*self.history.visited, Visit(gpus=self.gpus, tokens_per_s=rate, steps=500)),
            )
            self.gpus, self.trained_since_s = found.gpus, now_s + limits.restart_s
        return found


TICK_S = 600.0
SERIES = st.lists(
    st.tuples(
        st.one_of(st.floats(1.0, 1e4), st.just(0.0)),
        st.one_of(st.none(), st.floats(0, 1)),
        st.sampled_from([Phase.TRAINING, Phase.TRAINING, Phase.TRAINING, *Phase]),
    ),
    min_size=20,
    max_size=120,
)


@given(some=JOBS, series=SERIES)
def test_any_series_of_metrics_resizes_once_a_cool_down_at_most(some, series):
    limits = replace(LIMITS, pressure=some.pressure)
    job = Job.of(some)
    moments = []
    for tick, (rate, busy, phase) in enumerate(series):
        found = job.step(tick * TICK_S, limits, rate, gpu_busy_mean=busy, phase=phase)
        if found.act:
            moments.append(tick * TICK_S)
        job.tokens_left = max(0.0, job.tokens_left - TICK_S * rate)
    assert all(b - a >= limits.cool_down_s for a, b in itertools.pairwise(moments))


@given(some=JOBS, noise=st.lists(st.floats(-0.03, 0.03), min_size=10, max_size=10))
def test_a_steady_job_never_regrows(some, noise):
    """True rates on the curve, measured within 3 %: a growth may be shrunk once it caught up, no more."""
    limits, curve = replace(LIMITS, pressure=some.pressure), some.curve
    job = Job.of(some)
    steady(job, limits, curve, noise=noise)
    done = [Action.GROW if after > before else Action.SHRINK for before, after in job.changes]
    assert done == sorted(done, key=[Action.GROW, Action.SHRINK].index)
    assert len(done) <= len(COUNTS)


def steady(job, limits, curve, *, hours=60, noise=(0.0,)):
    """Decide every hour about a job whose true rates are on `curve`."""
    now_s = 0.0
    for error in itertools.islice(itertools.cycle(noise), hours):
        if job.tokens_left <= 0:
            return
        rate = curve.rate(job.gpus)
        job.step(now_s, limits, rate * math.exp(error))
        now_s += HOUR
        job.tokens_left -= HOUR * rate


@given(some=JOBS, truth=st.floats(1.1, 2.0), noise=st.lists(st.floats(-0.02, 0.02), min_size=5, max_size=5))
def test_a_steady_job_never_regrets_a_shrink_to_a_size_that_it_knows(some, truth, noise):
    """Whatever scaling is believed: the rates seen at visited sizes decide, so no series flaps."""
    limits = replace(LIMITS, pressure=some.pressure)
    job, curve = Job.of(some), Curve(doubling=truth)
    job.tokens_left = some.hours * HOUR * curve.rate(some.gpus)
    steady(job, limits, curve, hours=60, noise=noise)
    assert all(job.changes.count(change) <= 2 for change in job.changes), job.changes
    visited = set()
    for (before, after), then in itertools.pairwise(job.changes):
        visited.add(before)
        if after < before and after in visited:
            assert then[1] < then[0], job.changes


@given(some=JOBS, slack=st.floats(0.3, 1.2))
def test_a_late_job_keeps_its_gpus_while_it_has_a_chance_and_then_nearly_its_first_rate(some, slack):
    """The case of issue 17.10: 512 GPUs became 384 in three cool-downs, until no chance was left."""
    limits = replace(LIMITS, max_gpus=some.gpus, pressure=some.pressure, free_gpus=0)
    job = Job.of(some)
    job.deadline_s = slack * some.hours * HOUR
    for hour in range(60):
        before, had = job.gpus, job.tokens_left
        rate = job.curve.rate(job.gpus)
        found = job.step(hour * HOUR, limits, rate)
        late = had / rate > (job.deadline_s - hour * HOUR)
        if found.act and late:
            assert found.action is Action.SHRINK
            assert job.history.first_gpus == some.gpus
            assert job.curve.rate(found.gpus) >= some.rate / 1.1
            assert had / rate * math.exp(-0.02 * 1.9) > job.deadline_s - hour * HOUR, before
        job.tokens_left -= HOUR * rate
        if job.tokens_left <= 0:
            return


NUMBERS = st.one_of(st.floats(), st.integers(-(10**20), 10**20))
ANY = st.one_of(st.none(), NUMBERS)


def hostile(kind, known):
    """One to three numbers of a value replaced by anything; None only where the type allows it."""
    fitting = {
        f.name: ANY if f.default is None else NUMBERS
        for f in fields(kind)
        if f.name not in ("scaling", "layout") and isinstance(getattr(known, f.name), int | float | None)
    }
    one = st.sampled_from(sorted(fitting)).flatmap(lambda name: st.tuples(st.just(name), fitting[name]))
    return st.lists(one, max_size=3).map(lambda some: replace(known, **dict(some)))


SOUND = Setting(curve=Curve(), gpus=8, hours=100.0, slack=0.8, pressure=Pressure.ALWAYS)


@given(
    seen=hostile(Reading, reading(8, SOUND.rate)),
    running=hostile(Running, SOUND.running()),
    limits=hostile(Limits, LIMITS),
    past=hostile(History, History(last_resize_s=-1e6)),
    now_s=st.one_of(st.just(0.0), st.floats()),
)
def test_hostile_numbers_raise_nothing_and_move_nothing_without_finite_ones(
    seen, running, limits, past, now_s
):
    found = decide(seen, running, limits, past, now_s=now_s)
    if found.action in RESIZES:
        assert all(math.isfinite(v) for v in (running.tokens_left, running.deadline_left_s, now_s))
        assert math.isfinite(found.price_gpu_hours)
        assert found.gpus in COUNTS


INFINITE = {
    "deadline NaN": {"deadline_left_s": math.nan},
    "deadline never": {"deadline_left_s": math.inf},
    "tokens infinite": {"tokens_left": math.inf},
    "tokens NaN": {"tokens_left": math.nan},
    "confidence NaN": {"confidence": math.nan},
    "confidence one": {"confidence": 1.0},
}


@pytest.mark.parametrize("change", INFINITE.values(), ids=INFINITE)
def test_a_job_with_an_impossible_number_is_kept_and_the_number_named(change):
    found = decide(reading(8, SOUND.rate), replace(SOUND.running(), **change), LIMITS, History(), now_s=0.0)
    assert (found.action, found.act) == (Action.KEEP, False)
    assert found.missing.reason.startswith("the ")
