"""Every example manifest is a plan that can be sized."""

from pathlib import Path

import pytest

from rightsizer_api import dump, load, loads, sizing
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted(ROOT.glob("examples/*.yaml"))


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_an_example_plans(file):
    answer = size(sizing.resolve(load(file)).request())
    assert isinstance(answer, Plan), answer.reason
    assert answer.reasons


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_an_example_survives_being_written(file):
    assert loads(dump(load(file))) == load(file)


@pytest.mark.parametrize(
    "file", sorted(ROOT.glob("examples/*/**/plan.yaml")), ids=lambda file: file.parent.name
)
def test_a_plan_beside_a_script_loads(file):
    assert load(file).spec.launch.command
