"""The bench of churn: growth, missed changes, and the changes that it can make."""

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is run from the repository, not installed
from bench.operator.churn import chosen, slope_mib_per_h, wrong


def plan(name, *, generation=2, observed=2):
    return {
        "metadata": {"name": name, "generation": generation},
        "status": {"observedGeneration": observed},
    }


def job(name, *, suspended=False):
    return {"metadata": {"labels": {"rightsizer.dev/plan": name}}, "spec": {"suspend": suspended}}


@pytest.mark.parametrize(
    ("plans", "jobs", "missed"),
    [
        ([plan("a")], [job("a")], set()),
        ([plan("a", observed=1)], [job("a")], {"a"}),
        ([plan("a")], [], {"a"}),
        ([plan("a")], [job("a"), job("a")], {"a"}),
        ([plan("a")], [job("a", suspended=True)], {"a"}),
        ([], [job("a")], {"a"}),
    ],
    ids=["as asked", "not seen", "no job", "two jobs", "suspended", "no plan"],
)
def test_a_plan_is_missed_unless_its_last_change_is_seen_and_carried_out(plans, jobs, missed):
    assert wrong(plans, jobs, {"a": False}) == missed


def test_growth_is_what_follows_the_first_third():
    fills = [(float(second), 100.0 + second) for second in range(0, 1200, 30)]
    grows = [(float(second), 1300.0 + (second - 1200) / 360.0) for second in range(1200, 3601, 30)]
    assert slope_mib_per_h([*fills, *grows]) == pytest.approx(10.0)


@pytest.mark.parametrize(("kind", "found"), [("suspend", "runs"), ("resume", "held"), ("delete", "any")])
def test_a_change_is_made_to_a_plan_that_it_fits(kind, found):
    ledger = {"runs": False, "held": True}
    picks = random.Random(1)  # noqa: S311 -- the same each time
    picked = {chosen(kind, ledger, picks) for _ in range(20)}
    assert picked == (set(ledger) if found == "any" else {found})
    assert chosen(kind, {}, picks) is None
