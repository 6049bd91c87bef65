"""job_submit.lua in a pretended slurmctld: the mode enforce, updates of jobs, on_fault."""

from collections.abc import Callable
from typing import Any

import pytest

from rightsizer_slurm.submit.protocol import SizingResponse, Verdict, response_text

GOOD = "rightsizer: model=llama-3.1-8b tokens=1B deadline=72h"
ENFORCE = "mode = size\n[partition p]\nmode = enforce\n"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"gres": "gres:gpu:1"}, -1),
        ({"shared": 0.0}, -1),
        ({"tres_per_node": "gres/gpu:1"}, -1),
        ({}, 0),
        ({"comment": "rightsizer: run=x", "gres": "gpu:1"}, -1),
        ({"comment": GOOD + " run=x", "gres": "gpu:4", "min_nodes": 2.0}, 0),
        ({"comment": GOOD + " run=x", "gres": "gpu:5", "min_nodes": 2.0}, -1),
        ({"comment": GOOD, "gres": "gpu:1", "script": None, "argv": "x"}, -1),
    ],
    ids=["gres", "whole nodes", "tres", "cores", "only run", "as its plan", "more than its plan", "srun"],
)
def test_enforce_lets_only_sized_gpu_jobs_pass(
    slurmctld_of: Callable[..., Any], fields: dict[str, Any], code: int
) -> None:
    host = slurmctld_of(config=ENFORCE)
    sized: dict[str, int | str] = {"min_nodes": 2, "max_nodes": 2, "gres": "gpu:h100:4"}
    plain = fields.get("comment") == "rightsizer: run=x"
    verdict = Verdict.REFUSE if plain else Verdict.OK
    host.answer = response_text(SizingResponse(verdict=verdict, fields={} if plain else sized))
    assert host.submit(**({"partition": "p", "shared": 65534.0} | fields))[0] == code


@pytest.mark.parametrize(
    ("change", "uid", "code"),
    [
        ({"partition": "p"}, 1000, -1),
        ({"partition": "p"}, 0, 0),
        ({"time_limit": 5.0}, 1000, 0),
        ({"partition": "q"}, 1000, 0),
    ],
    ids=["into the partition", "by root", "of its time", "elsewhere"],
)
def test_enforce_lets_no_user_move_a_job_in(
    slurmctld_of: Callable[..., Any], change: dict[str, Any], uid: int, code: int
) -> None:
    host = slurmctld_of(config=ENFORCE)
    record = host.lua.table_from({"partition": "other", "min_nodes": 1.0})
    changed = host.lua.table_from(change)
    assert host.lua.globals().slurm_job_modify(changed, record, host.lua.table(), uid) == code


@pytest.mark.parametrize(
    ("policy", "fields", "code", "held"),
    [
        ("as-written", {}, 0, False),
        ("refuse", {}, -1, False),
        ("hold", {}, 0, True),
        ("refuse", {"min_nodes": 2.0}, 0, False),
    ],
)
def test_a_job_of_a_comment_only_follows_on_fault(
    slurmctld_of: Callable[..., Any], policy: str, fields: dict[str, Any], code: int, held: bool
) -> None:
    host = slurmctld_of(config=f"on_fault = {policy}\n")
    done, job = host.submit(comment=GOOD, **fields)
    assert (done, job.get("priority") == 0, job["comment"].endswith(" ticket=0")) == (code, held, held)
    assert any("; fault 1" in line for line in host.logged)
