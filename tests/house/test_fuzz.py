import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is run from the repository, not installed
from bench.fuzz.__main__ import TARGETS, faults


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_parser_raises_anything_but_our_own_errors(target):
    """`make suite SUITE=fuzz` runs many more."""
    assert not faults(target, inputs=100, seed=1)
