"""Real child processes and the real engine: what a hostile request does to the others."""

import asyncio
import datetime as dt
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rightsizer_launch.bounded.process import ChildLimits
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.server import Server
from rightsizer_slurm.submit.sizing_processes import SizingTask, sizing_pool
from rightsizer_slurm.submit.ticket_store import TicketStore

LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
MIB = 1 << 20
Processes = Callable[[SizingTask], SizingResponse]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    pool = sizing_pool(1)

    async def size(task: SizingTask) -> SizingResponse:
        async with pool.turn(task.request.uid) as call:
            response: SizingResponse = await call(task)
        return response

    pool.start()
    yield lambda task: asyncio.run(size(task))
    pool.close()


def task(cluster: SlurmCluster, comment: str) -> SizingTask:
    return SizingTask(
        request=SizingRequest(comment=comment, uid=os.getuid()),
        cluster=cluster,
        site=SiteConfig(),
        limits=AccountingLimits(),
        now=dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
    )


def test_a_request_is_sized_in_a_child(processes: Processes, cluster: SlurmCluster) -> None:
    assert processes(task(cluster, LORA)).verdict is SizingVerdict.OK


@pytest.mark.parametrize("path", ["/tmp", "/dev/zero", "/proc/self/mem", "/nowhere"])  # noqa: S108
def test_a_path_that_is_no_plan_is_refused(processes: Processes, cluster: SlurmCluster, path: str) -> None:
    refused = processes(task(cluster, f"rightsizer: plan={path}"))
    assert (refused.verdict, refused.say.startswith(f"plan: '{path}'")) == (SizingVerdict.REFUSE, True)


def test_a_plan_of_a_thousand_million_laughs_is_refused_or_ends_its_child_only(
    processes: Processes, cluster: SlurmCluster, tmp_path: Path
) -> None:
    names = "abcdefghi"
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{one}: &{one} [{', '.join([f'*{last}'] * 9)}]" for last, one in itertools.pairwise(names)]
    (tmp_path / "laughs.yaml").write_text("\n".join(lines))
    said = processes(task(cluster, f"rightsizer: plan={tmp_path}/laughs.yaml"))
    assert said.verdict in (SizingVerdict.REFUSE, SizingVerdict.KEEP)
    assert processes(task(cluster, LORA)).verdict is SizingVerdict.OK


@pytest.mark.slow
def test_a_request_that_ends_its_child_leaves_its_job_unchanged(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    pool = sizing_pool(1, limits=ChildLimits(memory_bytes=64 * MIB, keep_bytes=64 * MIB, time_s=20.0))
    state, site = TicketStore(tmp_path / "state.db"), SiteConfig(hold_after_s=60.0)
    server = Server(site=site, state=state, trusted=frozenset(), pool=pool)
    server.update(cluster)
    request = SizingRequest(comment="rightsizer: model=mixtral-8x7b tokens=2B deadline=72h", uid=os.getuid())
    response = asyncio.run(server.respond(request))
    assert (response.verdict, response.code) == (SizingVerdict.KEEP, "fault")
    pool.close()
    state.close()
