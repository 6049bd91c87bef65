"""A source is left out of a judgement together with the framework profiles that rest on it."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is run from the repository, not installed
from bench.profiles import forgetting, reverted, support

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
