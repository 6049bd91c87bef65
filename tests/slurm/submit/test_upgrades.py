"""A plugin and a daemon of unequal versions, in either order: real Lua, the daemon's real socket."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lupa.lua51
import lupa.lua52
import lupa.lua53
import lupa.lua54
import pytest
from tests.slurm.submit.thread_pool import ThreadPool

from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.protocol import SizingResponse, SizingVerdict
from rightsizer_slurm.submit.server import Server
from rightsizer_slurm.submit.ticket_store import TicketStore

GOOD = "rightsizer: model=llama-3.1-8b tokens=1B deadline=72h"
OK = SizingResponse(verdict=SizingVerdict.OK, say="two nodes", fields={"min_nodes": 2, "max_nodes": 2})
OLDER_DAEMON = (
    b"RIGHTSIZER 1 KEEP\nsay=question: 'RIGHTSIZER 2 SIZE': is not a request of this protocol\nEND\n"
)
"""What a daemon of version 1 sends to a plugin of version 2."""
LUA = pytest.mark.parametrize("module", [lupa.lua51, lupa.lua52, lupa.lua53, lupa.lua54], ids=str)


def of_version_1(host: Any, *names: str) -> Any:
    """slurmctld after a restart with these files as version 1 had them: another number, verb and name."""
    for name in names:
        path = host.folder / name
        text = path.read_text().replace("VERSION = 2", "VERSION = 1").replace('" SIZE"', '" PLAN"')
        path.write_text(
            text.replace("M.response(", "M.answer(").replace("shared.response(", "shared.answer(")
        )
    host.lua.execute("dofile(plugin)")
    return host


def response_of_daemon(folder: Path, request: bytes) -> bytes:
    """The response of this version's daemon."""

    async def main() -> bytes:
        state, site = TicketStore(folder / "state.db"), SiteConfig(hold_after_s=5.0)
        server = Server(
            site=site, state=state, trusted=frozenset({os.getuid()}), pool=ThreadPool(lambda _: OK)
        )
        server.update(SlurmCluster())
        async with await asyncio.start_unix_server(server.serve, folder / "s", limit=8192):
            reader, writer = await asyncio.open_unix_connection(folder / "s")
            writer.write(request)
            response = await asyncio.wait_for(reader.read(), 20)
            writer.close()
        state.close()
        return response

    return asyncio.run(main())


@LUA
def test_a_plugin_of_version_1_is_served_by_the_daemon(
    slurmctld_of: Callable[..., Any], module: Any, tmp_path: Path
) -> None:
    host = of_version_1(slurmctld_of(module), "rightsizer.lua", "job_submit.lua")
    host.submit(comment=GOOD)
    assert host.requests[0].startswith("RIGHTSIZER 1 PLAN\n")
    host.response = response_of_daemon(tmp_path, host.requests[0].encode("latin-1"))
    code, job = host.submit(comment=GOOD)
    assert (code, job["max_nodes"], host.messages[-1]) == (0, 2, "rightsizer: two nodes")


@LUA
@pytest.mark.parametrize(
    ("config", "code", "held"),
    [("mode = size\n", 0, False), ("mode = enforce\n", 0, True), ("mode = warn\n", 0, False)],
    ids=["size", "enforce", "warn"],
)
def test_with_a_daemon_of_version_1_jobs_are_as_written_or_held_where_sizes_are_enforced(
    slurmctld_of: Callable[..., Any], module: Any, config: str, code: int, held: bool
) -> None:
    host = slurmctld_of(module, config=config)
    host.response = OLDER_DAEMON
    done, job = host.submit(comment=GOOD, gres="gpu:8", min_nodes=2.0)
    assert (done, job.get("priority") == 0, job["min_nodes"]) == (code, held, 2.0)
    assert "the daemon has protocol version 1" in host.messages[-1]
    host.submit(comment=GOOD)
    assert len(host.requests) == 2  # no pause: the next job finds a daemon that was replaced meanwhile


@LUA
@pytest.mark.parametrize("older", ["rightsizer.lua", "job_submit.lua"])
@pytest.mark.parametrize(("mode", "code"), [("size", 0), ("enforce", -1)])
def test_with_halves_of_two_versions_no_job_is_changed_and_none_passes_where_sizes_are_enforced(
    slurmctld_of: Callable[..., Any], module: Any, older: str, mode: str, code: int
) -> None:
    host = of_version_1(slurmctld_of(module, config=f"mode = {mode}\n"), older)
    host.response = OLDER_DAEMON if older == "rightsizer.lua" else b"RIGHTSIZER 2 OK\nmax_nodes=1\nEND\n"
    done, job = host.submit(comment=GOOD, gres="gpu:8", min_nodes=2.0)
    assert (done, job["min_nodes"], job["gres"]) == (code, 2.0, "gpu:8")
