import gc
import os
import re
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan

os.environ["RIGHTSIZER_CALIBRATION"] = ""  # no test reads or writes what this user has measured

# Keeps the unit suite near half a minute. In CI the same inputs each time: only a change makes it red.
# `make nightly` looks longer, and at other inputs each time (`pytest --hypothesis-profile=thorough`)
settings.register_profile("quick", max_examples=20, deadline=None, derandomize="CI" in os.environ)
settings.register_profile("thorough", max_examples=1000, deadline=None, derandomize=False)
settings.load_profile("quick")

gc.disable()  # while tests are collected: next to nothing of that is garbage


def pytest_collection_finish():
    """Freeze imported and collected objects: no garbage collection need look through it again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def plan_within():
    """plan_within(request, wanted): the plan in the middle of the deadlines with which `wanted(plan)` holds.

    A refit of the engine moves these deadlines, and no test that asks for one. A request is searched once.
    """
    searched = []  # requests and their plans by deadline; a request is not hashable

    def sized(request):
        """From a deadline to its plan."""
        for known, find_plan in searched:
            if known == request:
                return find_plan
        find_plan = cache(lambda deadline_s: size(replace(request, deadline_s=deadline_s), compared=False))
        searched.append((request, find_plan))
        return find_plan

    def find(request, wanted):
        alone = size(replace(request, gpu_counts=(1,), deadline_s=None), compared=False)
        plans = sized(request)
        for deadlines in (
            18,
            52,
            154,
        ):  # each has the deadlines of the one before: (n - 1) is a third of the next
            within_s = alone.option.finish_s * np.geomspace(0.2, 4.0, deadlines)
            tried = [plans(float(f"{each:.9g}")) for each in within_s]
            held = groupby(tried, key=lambda plan: isinstance(plan, Plan) and bool(wanted(plan)))
            longest = max((list(run) for good, run in held if good), key=len, default=())
            if len(longest) > 2:
                break
        assert longest, "no deadline has such a plan"
        return longest[len(longest) // 2]

    return find


@pytest.fixture(scope="session")
def opens():
    """opens(gpus): whether a plan opens with so many GPUs, to grow as it is measured."""
    return lambda gpus: lambda plan: plan.staging is not None and plan.option.gpus == gpus


@pytest.fixture(scope="session")
def commands():
    """commands(page): the commands of a page of docs/, in their order: `sh` blocks and lines after `$`."""

    def found(page):
        text = (Path(__file__).parents[1] / "docs" / page).read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```$|^    \$ ([^\n]+)", text, flags=re.MULTILINE | re.DOTALL)
        return [block or line for block, line in blocks]

    return found
