"""A source is left out of a judgement together with the framework profiles that rest on it."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is run from the repository, not installed
from bench.fit.gauss_newton import Linear, Prior, within
from bench.profiles import forgetting, reverted, support

from rightsizer_engine.estimate.parameters import Parameter

ABOVE = {"base": "", "child": "base", "grandchild": "child", "alone": ""}
USED = {("grandchild", "A"), ("child", "A"), ("base", "B"), ("alone", "A")}


@pytest.mark.parametrize(
    ("profile", "source", "kept"),
    [
        pytest.param("grandchild", "A", "base", id="climbs to what another source supports"),
        pytest.param("grandchild", "B", "grandchild", id="another source's profile stays"),
        pytest.param("base", "B", "base", id="a child's rows support its parent"),
        pytest.param("alone", "A", "", id="no parent"),
    ],
)
def test_a_profile_reverts_to_the_nearest_that_another_source_supports(profile, source, kept):
    assert reverted(profile, source, support(USED, ABOVE), ABOVE) == kept


def test_rows_lose_only_profiles_that_rest_on_their_source():
    rows = [
        {"id": "A-1", "framework": "Megatron-Bridge", "year": "2026"},
        {"id": "B-1", "framework": "Megatron-Core", "year": "2025"},
        {"id": "A-2", "framework": "nanotron", "year": "2025"},
        {"id": "C-1", "framework": "nobody's own", "year": "2025"},
    ]
    bridge, core, nano, other = forgetting(rows)
    assert bridge["profile"] == "megatron-core"
    assert core == rows[1]  # two sources stand behind Megatron-Core
    assert nano["framework"] == ""
    assert other == rows[3]


def test_a_parameter_without_data_follows_its_family():
    """Three classes of one term start from one prior; two are measured at 1.5 times it."""
    entries = [
        Parameter(name=f"term_{key}", value=1.0, prior=1.0, sigma_ln=0.3, unit="1", meaning="a term")
        for key in ("core", "fsdp1", "trainer")
    ]
    linear = Linear(point=np.zeros(3), residual=-np.log([1.5, 1.5]), jacobian=np.eye(3)[:2])
    kin = within(linear, np.ones(2), Prior.of(entries, lambda name: name.split("_")[0]))
    alone = within(linear, np.ones(2), Prior.of(entries))
    assert 0.1 < kin[2] < kin[0] < np.log(1.5)
    assert alone[2] == pytest.approx(0.0)
