"""`kubectl rightsizer` as users type it: kubectl finds the plugin on the PATH."""

import json

import pytest
from planrun import IDLE

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def test_the_whole_life_of_a_plan_through_kubectl_rightsizer(start, rightsizer):
    run = start(launch=IDLE)
    run.until("Running", within_s=300)
    assert "Running" in rightsizer(run, "status")
    story = rightsizer(run, "why", run.name)
    assert "it trains" in story
    assert "On time" in story
    assert "Next: nothing" in story
    assert "1 of 2 workers" in story or "2 of 2 workers" in story
    assert rightsizer(run, "plan", run.name).startswith("2 H100-SXM5-80GB")
    assert "Why" in rightsizer(run, "explain", run.name)
    resized = rightsizer(run, "resize", run.name, "--gpus=3", "--timeout=10m")
    assert "3 of 3 workers" in resized
    assert "NoPlan" in rightsizer(run, "resize", run.name, "--gpus=25", "--max-gpus=25", code=3)
    assert "cannot be applied" in rightsizer(run, "why", run.name)
    rightsizer(run, "resize", run.name, "--gpus=1", "--max-gpus=3", "--timeout=10m")
    assert "Suspended" in rightsizer(run, "suspend", run.name)
    assert f"Next: kubectl rightsizer resume {run.name}" in rightsizer(run, "why", run.name)
    rightsizer(run, "resume", run.name)
    found = json.loads(rightsizer(run, "status", run.name, "--json"))
    assert found[0]["status"]["sizing"]["gpus"] == 1


def test_a_missing_plan_is_one_line(start, rightsizer):
    said = rightsizer(start(launch=IDLE), "why", "nobody", code=2)
    assert said.splitlines() == [
        'error: (NotFound): trainingplans.rightsizer.dev "nobody" not found',
    ]
