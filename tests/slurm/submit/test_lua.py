"""The packaged plugins in Lua 5.1 to 5.4: the pure half alone, and job_submit.lua in a pretended slurmctld.

The real slurmctld is in tests/e2e/slurm; here are the other Lua versions, and many more inputs.
"""

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import lupa.lua51
import lupa.lua52
import lupa.lua53
import lupa.lua54
import pytest

from rightsizer_engine.errors import RightsizerError
from rightsizer_slurm.cluster.comment import LONGEST, parse, plan_of
from rightsizer_slurm.sbatch.directives import requeues
from rightsizer_slurm.submit.protocol import SizingResponse, SizingVerdict, parse_request, response_text

SOURCES = Path(__file__).resolve().parents[3] / "slurm/rightsizer_slurm/data"
VERSIONS = {"5.1": lupa.lua51, "5.2": lupa.lua52, "5.3": lupa.lua53, "5.4": lupa.lua54}
NO_VALUE = 4294967294.0
GOOD = "rightsizer: model=llama-3.1-8b tokens=1B deadline=72h"


@pytest.fixture(params=VERSIONS)
def slurmctld(request: pytest.FixtureRequest, slurmctld_of: Callable[..., Any]) -> Any:
    return slurmctld_of(VERSIONS[request.param])


@pytest.fixture(params=VERSIONS)
def shared(request: pytest.FixtureRequest) -> Any:
    return (
        VERSIONS[request.param]
        .LuaRuntime(encoding="latin-1")
        .execute((SOURCES / "rightsizer.lua").read_text())
    )


@pytest.mark.parametrize("module", VERSIONS.values(), ids=list(VERSIONS))
@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.lua")), ids=lambda path: path.stem)
def test_every_file_is_lua_of_this_version(path: Path, module: Any) -> None:
    assert module.LuaRuntime().compile(path.read_text()) is not None


def test_a_response_of_the_daemon_is_applied_and_printed(slurmctld: Any) -> None:
    fields: dict[str, int | str] = {"min_nodes": 2, "max_nodes": 2, "gres": "gpu:h100:8", "partition": "h100"}
    response = SizingResponse(
        verdict=SizingVerdict.OK, say="two nodes", fields=fields, variables={"RIGHTSIZER_TP": "8"}
    )
    slurmctld.response = response_text(response)
    code, job = slurmctld.submit(comment=GOOD)
    assert (code, slurmctld.messages) == (0, ["rightsizer: two nodes"])
    assert {key: job[key] for key in fields} == fields
    assert job["environment"]["RIGHTSIZER_TP"] == "8"


def test_a_request_of_the_plugin_is_what_the_daemon_reads(slurmctld: Any) -> None:
    slurmctld.submit(
        comment=GOOD + "\t x='1 2'", max_nodes=4.0, gres="gres:gpu:2", account="a\nuid=0", partition="p"
    )
    request = parse_request(slurmctld.requests[0].encode("latin-1"))
    assert (request.max_nodes, request.min_nodes, request.uid, request.kind) == (4, None, 1000, "sbatch")
    assert (request.account, request.gres) == ("a uid=0", "gres:gpu:2")
    assert request.comment.startswith(GOOD)


@pytest.mark.parametrize("response", [None, b"", b"garbage", b"RIGHTSIZER 2 OK\nmin_nodes=2\n"], ids=str)
def test_without_a_valid_response_the_job_is_unchanged_and_only_a_timeout_pauses_requests(
    slurmctld: Any, response: bytes | None
) -> None:
    slurmctld.response = response
    first, second = slurmctld.submit(comment=GOOD), slurmctld.submit(comment=GOOD)
    requests = 1 if response is None else 2
    assert (first[0], second[0], len(slurmctld.requests)) == (0, 0, requests)
    assert first[1]["min_nodes"] == second[1]["min_nodes"] == NO_VALUE
    assert all("the job is submitted unchanged" in message for message in slurmctld.messages)


@pytest.mark.parametrize(
    ("fields", "excess"),
    [
        ({"max_nodes": 2.0}, {"max_nodes": 4, "min_nodes": 4}),
        ({"time_limit": 60.0}, {"time_limit": 61}),
        ({"partition": "a,b"}, {"partition": "c"}),
    ],
    ids=["nodes", "time", "partition"],
)
def test_a_response_beyond_the_user_s_options_is_rejected(
    slurmctld: Any, fields: dict[str, Any], excess: dict[str, int | str]
) -> None:
    slurmctld.response = response_text(SizingResponse(verdict=SizingVerdict.OK, fields=excess))
    _, job = slurmctld.submit(comment=GOOD, **fields)
    assert {key: job[key] for key in fields} == fields
    assert "the answer exceeds your" in slurmctld.messages[0]


def test_a_refusal_refuses_and_in_the_mode_warn_only_prints(slurmctld_of: Callable[..., Any]) -> None:
    for mode, code in (("size", -1), ("warn", 0)):
        host = slurmctld_of(config=f"mode = {mode}\n")
        host.response = response_text(SizingResponse(verdict=SizingVerdict.REFUSE, say="no plan"))
        assert host.submit(comment=GOOD)[0] == code
        assert "no plan" in host.messages[0]


@pytest.mark.parametrize(
    "fields",
    [{"comment": ""}, {"comment": "other"}, {}, {"comment": "rightsizer: plan=/a run=/b"}],
    ids=["empty", "other", "none", "sized"],
)
def test_other_jobs_cost_no_request_and_no_word(slurmctld: Any, fields: dict[str, str]) -> None:
    assert slurmctld.submit(**fields)[0] == 0
    assert (slurmctld.requests, slurmctld.messages) == ([], [])


@pytest.mark.parametrize(
    ("head", "takes"),
    [
        ("#!/bin/sh", True),
        ("#!/usr/bin/env bash", True),
        ("#! /bin/bash -l", True),
        ("#!/usr/bin/env -S bash -e", True),
        ("#!/usr/bin/python3", False),
        ("#!/bin/csh", False),
        ("no shebang", False),
    ],
)
def test_only_a_shells_script_gets_the_preamble(shared: Any, head: str, takes: bool) -> None:
    script = shared.with_preamble(f"{head}\n#SBATCH --time=5\ntrain\n")
    assert (script is not None) == takes
    assert script is None or (script.startswith(f"{head}\n") and script.endswith("\ntrain\n"))


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:00", 90),
        ("1:30:00", 90),
        ("1-12", 2160),
        ("1-12:30", 2190),
        ("1-0:0:30", 1441),
        ("soon", None),
        ("", None),
        ("1:2:3:4", None),
        ("-1", None),
    ],
)
def test_time_limits_are_read_as_sbatch_does(shared: Any, text: str, minutes: int | None) -> None:
    assert shared.minutes(text) == minutes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mode = on", "mode is off, warn, size or enforce"),
        ("timeout_s = 99", "timeout_s is out of bounds"),
        ("nonsense", "cannot parse: nonsense"),
        ("mode = off -- os.exit()", "mode is off"),
    ],
)
def test_a_wrong_setting_is_complained_of_and_the_default_stays(
    shared: Any, text: str, complaint: str
) -> None:
    settings, complaints = shared.config(text)
    assert (settings.mode, settings.timeout_s) == ("size", 0.3)
    assert complaint in complaints[1]


def test_sections_of_the_daemons_are_left_to_it(shared: Any) -> None:
    text = "mode = warn\n[gpus]\n1g.10gb = none\nuntyped = H100\n[monitor]\nact = mail\nmode = off\n"
    settings, complaints = shared.config(text)
    assert (settings.mode, list(complaints.values())) == ("warn", [])


def test_the_strictest_mode_of_a_jobs_partitions_counts(shared: Any) -> None:
    settings, _ = shared.config("mode = off\n[partition a]\nmode = warn\n[partition b]\nmode = enforce\n")
    modes = [shared.mode(settings, names) for names in ("", "a", "a,b", "c", None)]
    assert modes == ["off", "warn", "enforce", "off", "off"]


def comments(count: int, seed: int = 1) -> Iterator[str]:
    """Comments of people and of attackers: good words, broken ones, control characters, shells, Lua."""
    dice = random.Random(seed)  # noqa: S311
    words = (
        "model=llama-3.1-8b",
        "tokens=1B",
        "deadline=72h",
        "gpu=H100",
        "min=2",
        "elastic=auto",
        "plan=/etc/shadow",
        "run=/x",
        "model='a b'",
        'x="',
        "=",
        "tokens=",
        "=5",
        "a.b.c=1",
        "launch.env=1",
        "$(id)",
        "`id`",
        ";rm -rf /",
        "\n",
        "\r",
        "\x00",
        "\x1b[2J",
        "%s%n%d",
        "%1",
        "\u00e4",
        "]]os.execute('id')--[[",
        "END",
        "env.PATH=/x",
        "\nEND\n",
        "admin_comment=1",
        "uid=0",
        "--",
        "#",
        "\\",
        "../../etc",
        "x" * 600,
        "\t",
        "'",
        '"',
    )
    for _ in range(count):
        head = dice.choice(("rightsizer:", "rightsizer:", "rightsizer: ", " rightsizer:", "rightsize:", ""))
        picked = [dice.choice(words) for _ in range(dice.randrange(8))]
        noise = "".join(chr(dice.randrange(256)) for _ in range(dice.choice((0, 0, 0, 3))))
        yield head + dice.choice((" ", "", "  ")).join(picked) + noise


LINE = re.compile(r"[\x20-\x7e]*")


def fuzzed(host: Any, text: str) -> None:
    """One comment through the plugin and the daemon's parser: no crash, no second line, no odd character."""
    host.messages.clear()
    host.requests.clear()
    host.logged.clear()
    host.response = response_text(SizingResponse(verdict=SizingVerdict.KEEP, say=text))
    code, job = host.submit(comment=text.encode("latin-1", errors="replace").decode("latin-1"))
    assert code in {0, -1}
    assert (job["min_nodes"], dict(job["environment"])) == (NO_VALUE, {})
    assert all(LINE.fullmatch(message) for message in (*host.messages, *host.logged))
    for text_sent in host.requests:
        request = parse_request(text_sent.encode("ascii"))
        assert (request.uid, request.user) == (1000, "alice")
        assert len(request.comment) <= LONGEST + 16
        with suppress(RightsizerError):
            plan_of(parse(request.comment))


def test_no_comment_breaks_the_plugin_or_the_daemon(slurmctld: Any) -> None:
    for text in comments(300):
        fuzzed(slurmctld, text)


@pytest.mark.slow
def test_a_hundred_thousand_comments_break_nothing(slurmctld_of: Callable[..., Any]) -> None:
    count = int(os.environ.get("RIGHTSIZER_FUZZ", "2000"))
    host = slurmctld_of()
    began_s = time.monotonic()
    for text in comments(count, seed=7):
        fuzzed(host, text)
    print(f"{count} comments in {time.monotonic() - began_s:.0f} s")  # noqa: T201 (for whoever runs it with -s)


def responses(count: int) -> Iterator[str]:
    """Responses of a daemon gone mad."""
    dice = random.Random(3)  # noqa: S311
    lines = (
        "min_nodes=2",
        "min_nodes=1e9",
        "max_nodes=-1",
        "gres=gpu:h100:8",
        "gres=;",
        "script=x",
        "user_id=0",
        "END",
        "env.LD_PRELOAD=/x",
        "env.RIGHTSIZER_A=$(x)",
        "say=\x1b",
        "priority=0",
        "partition=../x",
        "",
        "=",
        "\x00",
    )
    for _ in range(count):
        head = dice.choice(
            ("RIGHTSIZER 2 OK", "RIGHTSIZER 2 HOLD", "RIGHTSIZER 3 OK", "RIGHTSIZER 2 REFUSE", "")
        )
        yield "\n".join([head, *(dice.choice(lines) for _ in range(dice.randrange(6))), "END", ""])


ALLOWED = {
    "min_nodes",
    "max_nodes",
    "num_tasks",
    "cpus_per_task",
    "min_cpus",
    "time_limit",
    "priority",
    "gres",
    "partition",
    "admin_comment",
    "tres_per_job",
}


def test_no_response_sets_a_forbidden_option(shared: Any) -> None:
    for text in responses(500):
        response = shared.response(text)
        if isinstance(response, tuple):
            continue
        assert set(response.set) <= ALLOWED
        assert all(name.startswith("RIGHTSIZER_") for name in response.env)
        assert LINE.fullmatch(response.say)


def test_the_user_nobody_is_a_user(slurmctld: Any) -> None:
    job = slurmctld.lua.table_from({"comment": GOOD, "script": "#!/bin/sh"})
    slurmctld.lua.globals().slurm_job_submit(job, slurmctld.lua.table(), 65534)
    assert parse_request(slurmctld.requests[0].encode("latin-1")).uid == 65534


@pytest.mark.parametrize(
    ("lines", "requeue", "goes_on"),
    [
        ("trap 'scontrol requeue $SLURM_JOB_ID' USR1\nsrun train & wait", NO_VALUE, True),
        ("srun train\n  scontrol  requeue $SLURM_JOB_ID", 1.0, True),
        ("#SBATCH --requeue\nsrun train", 1.0, False),
        ("# scontrol requeue $SLURM_JOB_ID\nsrun train", NO_VALUE, False),
        ("srun train # then scontrol requeue", NO_VALUE, False),
        ("#SBATCH --no-requeue\nscontrol requeue $SLURM_JOB_ID", 0.0, False),
        ("scontrol requeuehold $SLURM_JOB_ID", NO_VALUE, False),
        ("", NO_VALUE, False),
    ],
)
def test_a_script_continues_after_its_limit_if_it_requeues_itself(
    shared: Any, lines: str, requeue: float, goes_on: bool
) -> None:
    script = f"#!/bin/bash\n{lines}\n"
    job = shared_job(shared, script=script, requeue=requeue)
    assert (shared.requeues(job) == 1, requeues(script)) == (goes_on, goes_on)


@pytest.mark.parametrize(
    ("size", "requested", "exceeded"),
    [
        ({"gres": "gpu:h100:4", "max_nodes": 1}, {"gres": "gres:gpu:3"}, "GPUs per node"),
        ({"gres": "gpu:h100:1", "max_nodes": 1}, {"gres": "gres:gpu:0"}, "GPUs per node"),
        ({"gres": "gpu:h100:4", "max_nodes": 2}, {"tres_per_job": "gres:gpu:h100:6"}, "GPUs"),
        ({"gres": "gpu:h100:3", "max_nodes": 3}, {"gres": "gres:gpu:3", "max_nodes": 2.0}, "nodes"),
        ({"gres": "gpu:h100:3", "max_nodes": 2}, {"gres": "gres:gpu:3", "max_nodes": 2.0}, None),
        ({"gres": "gpu:h100:8", "max_nodes": 2}, {}, None),
        ({"gres": "gpu:h100:2", "max_nodes": 1}, {"gres": "gres:gpu:2,gres:nvme:1"}, None),
        ({"gres": "gpu:h100:3", "max_nodes": 1}, {"gres": "gres/nvme:8,gres/gpu:2"}, "GPUs per node"),
    ],
    ids=str,
)
def test_a_response_with_more_gpus_than_requested_is_recognised(
    shared: Any, size: dict[str, Any], requested: dict[str, Any], exceeded: str | None
) -> None:
    assert shared.exceeds(shared_job(shared, **size), shared_job(shared, **requested)) == exceeded


def shared_job(shared: Any, **fields: Any) -> Any:
    """A Lua table of the runtime that `shared` is of."""
    table = shared.config("")[0]
    for key in list(table):
        table[key] = None
    for key, value in fields.items():
        table[key] = value
    return table
