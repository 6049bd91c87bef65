"""job_submit.lua in a pretended slurmctld: the mode enforce, updates of jobs, on_fault."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import lupa.lua51
import lupa.lua52
import lupa.lua53
import lupa.lua54
import pytest

from rightsizer_slurm.submit.protocol import SizingResponse, SizingVerdict, response_text

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
        ({"comment": GOOD, "gres": "gpu:1", "script": None, "argv": "x"}, -1),
    ],
    ids=["gres", "whole nodes", "tres", "cores", "only run", "as its plan", "srun"],
)
def test_enforce_lets_only_sized_gpu_jobs_pass(
    slurmctld_of: Callable[..., Any], fields: dict[str, Any], code: int
) -> None:
    host = slurmctld_of(config=ENFORCE)
    plain = fields.get("comment") == "rightsizer: run=x"
    host.response = response_text(SizingResponse(verdict=SizingVerdict.REFUSE if plain else SizingVerdict.OK))
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
    assert host.modify(change, {"partition": "other", "min_nodes": 1.0}, uid=uid) == code


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


HALF = "rightsizer.lua"
FAULTS: dict[str, Callable[[Any], Any]] = {
    "no fault": lambda host: None,
    "hung": lambda host: setattr(host, "response", None),
    "in the pause": lambda host: (setattr(host, "response", None), host.submit(comment=GOOD)),
    "no response": lambda host: setattr(host, "response", b""),
    "garbage": lambda host: setattr(host, "response", b"RIGHTSIZER 2 OK\nuser_id=0\nEND\n"),
    "newer daemon": lambda host: setattr(host, "response", b"RIGHTSIZER 9 OK\nEND\n"),
    "older daemon": lambda host: setattr(host, "response", b"RIGHTSIZER 1 KEEP\nEND\n"),
    "fault of the daemon": lambda host: setattr(host, "response", FAULT),
    "error of the socket": lambda host: host.lua.execute("exchange = function() error('no') end"),
    "error of Slurm": lambda host: host.lua.execute("slurm.log_user = function() error('no') end"),
    "no configuration": lambda host: host.conf.unlink(),
    "empty configuration": lambda host: host.conf.write_text(""),
    "wrong configuration": lambda host: host.conf.write_text("mode = size\n[partition p]\nmode = enfoce\n"),
    "long configuration": lambda host: host.conf.write_text("mode = size\n" + "#" * 70_000),
    "unreadable configuration": lambda host: (host.conf.unlink(), host.conf.mkdir()),
}
FAULT = response_text(SizingResponse(verdict=SizingVerdict.KEEP, say="internal error", code="fault"))
JOB = {"comment": GOOD, "gres": "gpu:8", "min_nodes": 2.0}


def broken(host: Any, text: str | None) -> Any:
    """slurmctld after a restart with this in the place of the plugin's other half."""
    half = host.folder / HALF
    half.unlink() if text is None else half.write_text(text)
    host.lua.execute("dofile(plugin)")
    return host


@pytest.mark.parametrize("module", [lupa.lua51, lupa.lua52, lupa.lua53, lupa.lua54], ids=str)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_with_no_fault_a_gpu_job_passes_unsized_where_sizes_are_enforced(
    slurmctld_of: Callable[..., Any], module: Any, fault: Callable[[Any], Any]
) -> None:
    host = slurmctld_of(module, config=ENFORCE)
    host.response = None
    assert host.submit(partition="p", **JOB)[1]["priority"] == 0  # the plugin has read its settings
    fault(host)
    host.now_s += 60
    code, job = host.submit(partition="p", **JOB)
    assert code != 0 or (job["priority"] == 0 and "ticket=" in job["comment"])
    assert host.submit(partition="p", comment=None)[0] == 0  # no GPUs, so not our job
    code, job = host.submit(partition="other", **JOB)
    assert (code, job.get("priority"), job["comment"]) == (0, None, GOOD)


@pytest.mark.parametrize("policy", ["as-written", "hold", "refuse"])
@pytest.mark.parametrize("fields", [JOB, {"comment": GOOD}, {"comment": GOOD + " run=x", "gres": "gpu:1"}])
def test_on_fault_does_not_weaken_enforce(
    slurmctld_of: Callable[..., Any], policy: str, fields: dict[str, Any]
) -> None:
    host = slurmctld_of(config=f"on_fault = {policy}\n{ENFORCE}")
    host.response = None
    for _ in range(2):  # the second in the pause
        code, job = host.submit(partition="p", **fields)
        assert (code, job.get("priority") == 0) == ((-1, False) if policy == "refuse" else (0, True))
    assert len(host.requests) == 1


@pytest.mark.parametrize("half", [None, "this is no Lua", "return 7", "return {}", "error('no')"])
@pytest.mark.parametrize("there", [True, False], ids=["with rightsizer.conf", "without"])
def test_without_its_other_half_the_plugin_refuses_only_in_enforced_partitions(
    slurmctld_of: Callable[..., Any], half: str | None, there: bool
) -> None:
    host = slurmctld_of(config=ENFORCE)
    host.submit(**JOB)  # it keeps the settings
    if not there:
        host.conf.unlink()
    host = broken(host, half)
    assert host.submit(partition="p", **JOB)[0] == -1
    assert [host.submit(**(JOB | {"partition": name}))[0] for name in ("q", "pp")] == [0, 0]
    assert host.submit(partition="p", comment=None)[0] == 0
    held = {"partition": "p", "priority": 0.0, "comment": GOOD}
    assert [host.modify({"priority": 4294967295.0}, held, uid=uid) for uid in (1000, 0)] == [-1, 0]


def test_settings_outlive_their_file_and_slurmctld(slurmctld_of: Callable[..., Any]) -> None:
    slurmctld_of(config=ENFORCE).submit()
    (before := slurmctld_of(config=ENFORCE)).conf.unlink()
    after = slurmctld_of(config=None)  # slurmctld has started again
    for host in (before, after):
        host.response = None
        assert host.submit(partition="p", **JOB)[1]["priority"] == 0
    assert after.logged[0] == "rightsizer: rightsizer.conf: cannot be read"


def test_settings_that_were_never_readable_change_nothing(slurmctld_of: Callable[..., Any]) -> None:
    host = slurmctld_of(config=None)
    assert (host.submit(partition="p", **JOB)[0], host.messages) == (0, [])
    assert host.logged == ["rightsizer: rightsizer.conf: cannot be read"]


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"comment": f"{GOOD} ticket=0"}, -1),
        ({"comment": GOOD}, -1),
        ({"comment": "", "tres_per_node": "gres:gpu:8"}, -1),
        ({"comment": GOOD, "admin_comment": "[rightsizer/1 refused: no plan]"}, -1),
        ({"comment": GOOD, "admin_comment": "x [rightsizer/1 nodes=1 gpus=1]"}, 0),
        ({"comment": "", "admin_comment": None}, 0),
    ],
    ids=["held", "ticket lost", "no comment", "refused", "sized", "no GPUs"],
)
def test_only_a_sized_job_is_released_where_sizes_are_enforced(
    slurmctld_of: Callable[..., Any], record: dict[str, Any], code: int
) -> None:
    host = slurmctld_of(config=ENFORCE)
    held = {"partition": "p", "priority": 0.0} | record
    assert host.modify({"priority": 4294967295.0}, held) == code
    assert host.modify({"priority": 9.0}, held) == code
    assert host.modify({"comment": "mine"}, held) == code
    assert host.modify({"priority": 4294967295.0}, held | {"partition": "q"}) == 0
    assert host.modify({"priority": 4294967295.0}, held, uid=0) == 0
    assert host.modify({"priority": 0.0}, held) == 0  # to hold it


def test_a_held_jobs_request_is_in_its_admin_comment(slurmctld_of: Callable[..., Any]) -> None:
    host = slurmctld_of(config=ENFORCE)
    _, job = host.submit(partition="p", admin_comment="audit=7", features="a|b]", req_nodes="n[1-2]", **JOB)
    found = re.fullmatch(r"audit=7 \[rightsizer/1 held ([^\[\]]*)\]", job["admin_comment"])
    words = dict(word.split("=", 1) for word in found[1].split())
    assert {key: unquote(words[key]) for key in ("gres", "min_nodes", "features", "req_nodes")} == {
        "gres": "gpu:8", "min_nodes": "2", "features": "a|b]", "req_nodes": "n[1-2]",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        ENFORCE,
        "mode = enforce # all\n[partition p]\nmode = size\n",
        "[ partition p ]\r\nmode=enforce\r\n",
        "#mode = enforce\n[gpus]\nmode = enforce\n[partition  q]\nmode = enforce\n",
        "mode = warn\n[monitor]\nmode = enforce\n",
    ],
)
def test_without_its_other_half_the_plugin_reads_the_same_modes(
    slurmctld_of: Callable[..., Any], text: str
) -> None:
    host = slurmctld_of(config=text)
    shared = host.lua.execute((host.folder / HALF).read_text())
    names = ("p", "q", "r", "p,q")
    whole = [shared.mode(shared.config(text)[0], name) == "enforce" for name in names]
    host = broken(host, None)
    assert [host.submit(partition=name, **JOB)[0] == -1 for name in names] == whole
