"""Decisions on a running job, case by case: a job of 100 h of work on 8 GPUs that scales evenly."""

from dataclasses import dataclass, replace

import pytest

from rightsizer_engine.domain.reading import Phase, Reading
from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.resize.policy import decide, others_waiting_now, window_s
from rightsizer_engine.resize.preconditions import missing_data
from rightsizer_engine.resize.types import (
    Action,
    Bottleneck,
    History,
    JobSize,
    Limits,
    Mode,
    Pressure,
    Running,
)

HOUR = 3600.0
RATE = 1000.0  # tokens/s on 8 GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Doubling the GPUs multiplies the rate by `doubling`; an uncertainty away from the present size."""

    doubling: float = 1.8
    sigma: float = 0.05
    counts: tuple[int, ...] = (1, 2, 4, 8, 16, 32)

    def sizes(self, *, gpus, tokens_per_s, steps):
        assert steps > 0
        unit = {n: self.doubling ** (n.bit_length() - 1) for n in self.counts}
        return tuple(
            JobSize(
                gpus=n,
                tokens_per_s=tokens_per_s * unit[n] / unit[gpus],
                sigma=0.02 if n == gpus else self.sigma,
            )
            for n in self.counts
        )


READING = Reading(
    window_s=2 * HOUR,
    age_s=20.0,
    coverage=0.98,
    samples=240,
    gpus=8,
    tokens_per_s=RATE,
    tokens_done=1e9,
    steps=9000,
    window_steps=700,
    gpu_busy_mean=0.9,
    gpu_busy_max=1.0,
    tensor_active=0.4,
    memory_active=0.4,
    power_fraction=0.8,
    data_wait_fraction=0.01,
    phase=Phase.TRAINING,
    checkpoint_age_s=600.0,
    others_waiting=True,
    queries=("rate(tokens[2h]) = 1000",),
)
RUNNING = Running(
    gpus=8, scaling=Curve(), tokens_left=100 * HOUR * RATE, deadline_left_s=110 * HOUR, trained_s=10 * HOUR
)
LIMITS = Limits(mode=Mode.AUTO, max_gpus=32, checkpoint_interval_s=HOUR, restart_s=300.0)
LONG_AGO = History(last_resize_s=0.0)
NOW = 1e6

CASES = {
    # what is changed about the job above                        what is done           and what is said
    "on time: nothing": ({}, Action.KEEP, 8, "well sized"),
    "half would do and someone waits: shrink": ({"deadline_left_s": 300 * HOUR}, Action.SHRINK, 4, "saves"),
    "a quarter would do: half now, for slow is safe": (
        {"deadline_left_s": 900 * HOUR}, Action.SHRINK, 4, "4 GPUs finish",
    ),
    "half would only just do: no margin, nothing": ({"deadline_left_s": 190 * HOUR}, Action.KEEP, 8, "well"),
    "late: the fewest that are in time": ({"deadline_left_s": 80 * HOUR}, Action.GROW, 16, "past the dead"),
    "very late: all it needs at once": ({"deadline_left_s": 40 * HOUR}, Action.GROW, 32, "32 GPUs finish"),
    "late whatever it gets: people decide": ({"deadline_left_s": 9 * HOUR}, Action.FLAG, 8, "no size up to"),
    "the deadline passed: people decide": ({"deadline_left_s": -HOUR}, Action.FLAG, 8, "deadline has passed"),
    "no deadline: nothing to size for": ({"deadline_left_s": None}, Action.KEEP, 8, "no deadline"),
    "slow as measured, and so late": ({"tokens_per_s": RATE / 2}, Action.GROW, 32, "past the deadline"),
    "no GPUs free to grow into": (
        {"deadline_left_s": 80 * HOUR, "free_gpus": 4}, Action.FLAG, 8, "no size up to 8",
    ),
    "may not go below its least": ({"deadline_left_s": 300 * HOUR, "min_gpus": 8}, Action.KEEP, 8, "well"),
    "a size that failed is not tried again": (
        {"deadline_left_s": 80 * HOUR, "failed_gpus": (16,)}, Action.GROW, 32, "32 GPUs",
    ),
    "low use alone shrinks nothing": (
        {"gpu_busy_mean": 0.2, "tensor_active": 0.05}, Action.KEEP, 8, "no measurement shows the cause",
    ),
    "near its end a restart costs more than it saves": (
        {"tokens_left": 0.2 * HOUR * RATE, "deadline_left_s": 3 * HOUR}, Action.FLAG, 8, "restart costs more",
    ),
    "idle: told, not touched": (
        {"gpu_busy_max": 0.0, "tensor_active": 0.0, "power_fraction": 0.1, "tokens_per_s": 0.0},
        Action.FLAG, 8, "idle: its busiest GPU is 0% busy",
    ),
    "counters at 0 but power drawn: not idle": (
        {"gpu_busy_max": 0.0, "tensor_active": 0.0, "power_fraction": 0.6, "tokens_per_s": 0.0},
        Action.KEEP, 8, "unknown",
    ),
    "idle while it saves is no idling": (
        {"gpu_busy_max": 0.0, "tensor_active": 0.0, "power_fraction": 0.1, "tokens_per_s": 0.0,
         "phase": Phase.CHECKPOINT}, Action.KEEP, 8, "phase is checkpoint",
    ),
    "waits for data: named, not resized, though late": (
        {"data_wait_fraction": 0.6, "deadline_left_s": 80 * HOUR}, Action.FLAG, 8, "60% of step time waits",
    ),
    "evaluates": ({"phase": Phase.EVALUATION, "deadline_left_s": 80 * HOUR}, Action.KEEP, 8, "evaluation"),
    "warms up": ({"trained_s": 60.0, "deadline_left_s": 80 * HOUR}, Action.KEEP, 8, "warming up"),
    "cools down": (
        {"last_resize_s": NOW - 600, "deadline_left_s": 80 * HOUR}, Action.KEEP, 8, "cooling down after",
    ),
    "the window is short for a shrink": (
        {"window_s": 1.5 * HOUR, "deadline_left_s": 300 * HOUR}, Action.KEEP, 8,
        "waiting for a 2h window (1h30m so far)",
    ),
    "half an hour is enough to grow": (
        {"window_s": 0.5 * HOUR, "deadline_left_s": 80 * HOUR}, Action.GROW, 16, "16 GPUs",
    ),
    "the window reaches back to another size": (
        {"trained_s": HOUR, "deadline_left_s": 300 * HOUR}, Action.KEEP, 8, "precedes training at this size",
    ),
    "no checkpoints: a resize would lose all": (
        {"checkpoint_interval_s": None, "deadline_left_s": 80 * HOUR}, Action.KEEP, 8, "no checkpoints",
    ),
    "not ours and healthy": ({"scaling": None}, Action.KEEP, 8, "not managed by rightsizer"),
    "not ours and input-bound": (
        {"scaling": None, "data_wait_fraction": 0.5}, Action.FLAG, 8, "50% of step time waits for",
    ),
}  # fmt: skip


def decided(**changes):
    """The decision about the job above with some fields changed, wherever they are."""
    parts = []
    for part in (READING, RUNNING, LIMITS, LONG_AGO):
        own = {name: value for name, value in changes.items() if name in type(part).__dataclass_fields__}
        parts.append(replace(part, **own))
    assert all(any(n in type(p).__dataclass_fields__ for p in parts) for n in changes), changes
    return decide(*parts, now_s=NOW)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_job_of_a_hundred_hours(case):
    changes, action, gpus, said = case
    found = decided(**changes)
    assert (found.action, found.gpus) == (action, gpus), found.reason
    assert said in found.reason


WITHHELD = {
    "recommended": ({"mode": Mode.RECOMMEND}, "mode is Recommend"),
    "the site caps it": ({"cap": Mode.RECOMMEND}, "the site limits the mode to Recommend"),
    "nobody waits": ({"others_waiting": False}, "no other job waits for GPUs"),
    "nobody knows who waits": ({"others_waiting": None}, "unknown"),
}


@pytest.mark.parametrize("case", WITHHELD.values(), ids=WITHHELD)
def test_a_shrink_is_recommended_but_not_done(case):
    changes, said = case
    found = decided(deadline_left_s=300 * HOUR, **changes)
    assert (found.action, found.gpus, found.act) == (Action.SHRINK, 4, False)
    assert said in found.withheld


def test_growing_does_not_wait():
    assert decided(deadline_left_s=80 * HOUR, others_waiting=False).act


def test_always_gives_back_without_anyone_waiting():
    assert decided(deadline_left_s=300 * HOUR, others_waiting=False, pressure=Pressure.ALWAYS).act


def test_mode_off_does_and_reports_nothing():
    found = decided(deadline_left_s=80 * HOUR, mode=Mode.OFF)
    assert (found.action, found.act, found.reason) == (Action.KEEP, False, "elasticity is Off")


def test_even_scaling_shrinks_only_for_waiting_jobs():
    """With even scaling fewer GPUs save nothing: only handing them over is worth a restart."""
    even = {"scaling": Curve(doubling=2.0), "deadline_left_s": 300 * HOUR, "pressure": Pressure.ALWAYS}
    assert decided(**even, others_waiting=True).action is Action.SHRINK
    alone = decided(**even, others_waiting=False)
    assert (alone.action, alone.gpus) == (Action.FLAG, 8)
    assert "restart costs more" in alone.reason


def test_a_job_late_at_every_size_gives_back_gpus_that_hardly_speed_it_up():
    found = decided(scaling=Curve(doubling=1.02, sigma=0.01), deadline_left_s=50 * HOUR)
    assert (found.action, found.gpus) == (Action.SHRINK, 4)
    assert "no size up to 32 GPUs meets it; 4 GPUs finish" in found.reason


def test_a_decision_carries_its_evidence_and_its_price():
    found = decided(deadline_left_s=300 * HOUR)
    assert found.evidence[0] == "window 2h, 240 samples, 98% of the expected ones"
    assert "1k tokens/s on 8 GPUs over 700 steps" in found.evidence
    assert READING.queries[0] in found.evidence
    again_s = 600 * 1.8  # ten minutes on 8 GPUs, done again on 4
    assert found.price_gpu_hours == pytest.approx(4 * (300 + again_s) / HOUR)
    assert found.saves_gpu_hours == pytest.approx(800 - 400 * 1.8)
    assert found.confidence == pytest.approx(1.0, abs=1e-3)


def test_saving_before_the_stop_costs_the_restart_alone():
    found = decided(deadline_left_s=300 * HOUR, saves_first=True)
    assert found.price_gpu_hours == pytest.approx(4 * 300 / HOUR)


BOTTLENECKS = {
    "input": ({"data_wait_fraction": 0.3}, Bottleneck.INPUT),
    "memory": ({"memory_active": 0.75, "tensor_active": 0.1}, Bottleneck.MEMORY),
    "healthy": ({}, Bottleneck.HEALTHY),
    "healthy by kernels alone": ({"tensor_active": None}, Bottleneck.HEALTHY),
    "low for no measured reason": ({"tensor_active": 0.05}, Bottleneck.UNKNOWN),
    "nothing measured": ({"tensor_active": None, "gpu_busy_mean": None}, Bottleneck.UNKNOWN),
}


@pytest.mark.parametrize("case", BOTTLENECKS.values(), ids=BOTTLENECKS)
def test_what_holds_a_job_back_is_named(case):
    changes, bottleneck = case
    assert decided(**changes).bottleneck is bottleneck


def test_one_idle_gpu_of_many_is_not_an_idle_job():
    assert decided(gpu_busy_mean=0.5, gpu_busy_max=1.0).bottleneck is not Bottleneck.IDLE


def test_the_window_to_read_covers_two_checkpoints():
    assert window_s(LIMITS) == 2 * HOUR
    assert window_s(Limits()) == 600.0


@pytest.mark.parametrize("answer", [True, False])
def test_the_executor_s_pressure_overrides_the_reading_s(answer):
    reading = Reading(others_waiting=not answer)
    assert others_waiting_now(Limits(others_waiting=answer), reading) is answer
    assert others_waiting_now(Limits(others_waiting=None), reading) is not answer


@pytest.mark.parametrize(("late_s", "usable"), [(0.0, True), (0.1, False)], ids=["at the limit", "past it"])
def test_a_reading_is_stale_past_the_limit_and_not_at_it(late_s, usable):
    limits = load_resize()
    fresh = Reading(window_s=1800.0, age_s=limits.stale_s + late_s, coverage=1.0, samples=100)
    assert (missing_data(fresh, limits) is None) is usable


@pytest.mark.parametrize(
    ("window_s", "last_resize_s", "action"),
    [(900.0, None, Action.SHRINK), (840.0, None, Action.KEEP), (900.0, 0.0, Action.KEEP)],
    ids=["at-the-look", "before-the-look", "after-the-first-resize"],
)
def test_a_staged_job_is_first_resized_at_its_look(window_s, last_resize_s, action):
    reading = replace(READING, window_s=window_s)
    running = replace(RUNNING, deadline_left_s=300 * HOUR)
    limits, history = replace(LIMITS, look_s=1200.0), History(last_resize_s=last_resize_s)
    assert decide(reading, running, limits, history, now_s=NOW).action is action
