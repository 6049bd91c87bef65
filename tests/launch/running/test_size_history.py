"""Visits: the rates of a job's earlier runs."""

from tests.launch.running.test_readings import STEADY, start, steps

from rightsizer_engine.resize.types import Visit
from rightsizer_launch.running.marks import marks_of, pruned
from rightsizer_launch.running.size_history import visits_of

RESIZED = [
    *STEADY,
    start(300.0, 200, world=2, restart=1),
    *steps(201, 260, began_s=310.0, step_s=2.0, world=2, restart=1),
]


def test_a_rate_seen_at_an_earlier_size_is_a_visit_and_the_present_one_is_none():
    assert visits_of(marks_of(STEADY)) == ()
    assert visits_of(marks_of(RESIZED)) == (Visit(gpus=4, tokens_per_s=1000.0, steps=199),)
    kept = pruned(marks_of(RESIZED), keep_s=10.0)
    assert visits_of(kept) == visits_of(marks_of(RESIZED))


def test_a_visit_has_the_layout_of_its_marks_and_there_is_none_without_one():
    assert visits_of(marks_of(RESIZED), layout=lambda mark: f"DP {mark.world}")[0].layout == "DP 4"
    assert visits_of(marks_of(RESIZED), layout=lambda _: None) == ()


def test_a_run_that_never_trained_is_no_visit():
    failed = [*RESIZED, start(500.0, 260, world=8, restart=2), *steps(261, 262, began_s=600.0, restart=3)]
    assert [visit.gpus for visit in visits_of(marks_of(failed))] == [4, 2]
