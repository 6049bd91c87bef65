"""The daemon's socket, really: a unix socket, an event loop, threads; only the sizing is the test's own."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.slurm.submit.thread_pool import ThreadPool

from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.server import Server
from rightsizer_slurm.submit.ticket_store import TicketStore
from rightsizer_slurm.submit.validation import Validator

GOOD = b"comment=rightsizer: model=gpt2 tokens=1B"
OK = SizingResponse(verdict=SizingVerdict.OK, say="sized", fields={"min_nodes": 1})


def request(*lines: bytes) -> bytes:
    return b"\n".join([b"RIGHTSIZER 2 SIZE", *lines, b"END", b""])


Talk = Callable[[Server, TicketStore, Callable[[bytes], Awaitable[str]]], Awaitable[None]]


def talk(
    tmp_path: Path,
    what: Talk,
    *,
    sizer: Callable[[SizingRequest], SizingResponse] = lambda _: OK,
    site: SiteConfig = SiteConfig(hold_after_s=5.0),  # noqa: B008 (a frozen value)
    trusted: frozenset[int] = frozenset({os.getuid()}),
    cluster: SlurmCluster | None = SlurmCluster(),  # noqa: B008
    validator: Validator | None = None,
) -> None:
    """A server on a socket of its own, and a function that sends it requests."""

    async def main() -> None:
        state = TicketStore(tmp_path / "state.db")
        pool = ThreadPool(lambda task: sizer(task.request))
        server = Server(site=site, state=state, trusted=trusted, pool=pool, validator=validator)
        if cluster is not None:
            server.update(cluster)
        path = tmp_path / "s"

        async def ask(data: bytes) -> str:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(data)
            response = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            return response.decode()

        listener = await asyncio.start_unix_server(server.serve, path, limit=8192)
        async with listener:
            await what(server, state, ask)
        state.close()

    asyncio.run(main())


async def responded(state: TicketStore) -> None:
    while any(ticket.response is None for ticket in state.tickets()):
        await asyncio.sleep(0.02)


def test_a_result_comes_from_the_cache_the_second_time(tmp_path: Path) -> None:
    requests: list[SizingRequest] = []

    async def run(_server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        first, second = await ask(request(GOOD, b"uid=1")), await ask(request(GOOD, b"uid=2"))
        assert first == second == "RIGHTSIZER 2 OK\nmin_nodes=1\nsay=sized\nEND\n"

    talk(tmp_path, run, sizer=lambda q: requests.append(q) or OK)
    assert len(requests) == 1


def test_a_change_of_the_cluster_is_a_new_request(tmp_path: Path, cluster: SlurmCluster) -> None:
    requests: list[SizingRequest] = []

    async def run(server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        await ask(request(GOOD))
        server.update(SlurmCluster())
        await ask(request(GOOD))
        server.update(cluster)
        await ask(request(GOOD))

    talk(tmp_path, run, sizer=lambda q: requests.append(q) or OK)
    assert len(requests) == 2


def test_the_same_request_at_once_is_worked_out_once(tmp_path: Path) -> None:
    requests: list[SizingRequest] = []

    def slowly(q: SizingRequest) -> SizingResponse:
        requests.append(q)
        time.sleep(0.3)
        return OK

    async def run(_server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        responses = await asyncio.gather(*(ask(request(GOOD)) for _ in range(20)))
        assert {response.split("\n")[0] for response in responses} == {"RIGHTSIZER 2 OK"}

    talk(tmp_path, run, sizer=slowly)
    assert len(requests) == 1


def test_a_slow_size_is_a_hold_and_its_ticket_gets_the_size(tmp_path: Path) -> None:
    def slowly(_: SizingRequest) -> SizingResponse:
        time.sleep(0.3)
        return OK

    async def run(_server: Server, state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        said = await ask(request(GOOD))
        assert said.startswith("RIGHTSIZER 2 HOLD\npriority=0\nticket=")
        await responded(state)
        assert state.tickets()[0].response == OK

    talk(tmp_path, run, sizer=slowly, site=SiteConfig(hold_after_s=0.0))


def test_before_the_cluster_is_known_jobs_are_held(tmp_path: Path, cluster: SlurmCluster) -> None:
    async def run(server: Server, state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        assert (await ask(request(GOOD))).startswith("RIGHTSIZER 2 HOLD")
        server.size_tickets()
        assert state.tickets()[0].response is None
        server.update(cluster)
        server.size_tickets()
        await responded(state)
        assert state.tickets()[0].response == OK

    talk(tmp_path, run, cluster=None)


FULL = GOOD + b" launch.checkpoint.path=/" + 700 * b"x"  # no room for the variables


@pytest.mark.parametrize("line", [b"mode=warn", b"kind=cli", FULL], ids=["warn", "cli", "long comment"])
def test_a_job_that_cannot_be_held_is_submitted_unchanged(tmp_path: Path, line: bytes) -> None:
    async def run(_server: Server, state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        assert (await ask(request(GOOD, line))).startswith("RIGHTSIZER 2 KEEP")
        assert state.tickets() == ()

    talk(tmp_path, run, cluster=None)


def test_a_fault_in_one_request_leaves_its_job_unchanged_and_others_sized(tmp_path: Path) -> None:
    def sizer(request: SizingRequest) -> SizingResponse:
        if "gpt2-xl" in request.comment:
            raise IsADirectoryError
        return OK

    async def run(_server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        said = await ask(request(b"comment=rightsizer: model=gpt2-xl tokens=1B"))
        assert said.startswith("RIGHTSIZER 2 KEEP\ncode=fault\nsay=internal error\n")
        assert (await ask(request(GOOD))).startswith("RIGHTSIZER 2 OK")

    talk(tmp_path, run, sizer=sizer)


class FaultyOnce(Validator):
    """A validator with a fault of its own in its first request."""

    requests = 0

    async def error(self, request: SizingRequest) -> str:
        self.requests += 1
        if self.requests == 1:
            raise KeyError("PYDANTIC_DISABLE_PLUGINS")
        return await super().error(request)


def test_a_fault_before_the_sizing_gets_a_response_too(tmp_path: Path) -> None:
    async def run(_server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        assert (await ask(request(GOOD))).startswith("RIGHTSIZER 2 KEEP\ncode=fault\nsay=internal error\n")
        assert (await ask(request(GOOD))).startswith("RIGHTSIZER 2 OK")

    talk(tmp_path, run, validator=FaultyOnce())


@pytest.mark.slow
def test_a_user_with_many_requests_delays_no_other(tmp_path: Path) -> None:
    ended = threading.Event()

    def sizer(request: SizingRequest) -> SizingResponse:
        if request.uid == 1:
            ended.wait(20)
        return OK

    async def run(_server: Server, state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        for deadline in range(1, 1003):
            said = await ask(request(GOOD + b" deadline=%dh" % deadline, b"uid=1"))
        assert "1,000 of your requests wait to be sized" in said
        assert (await ask(request(GOOD, b"uid=2"))).startswith("RIGHTSIZER 2 HOLD")
        while state.tickets()[-1].response != OK:
            await asyncio.sleep(0.02)
        assert all(ticket.response is None for ticket in state.tickets()[:-1])
        ended.set()
        await responded(state)

    talk(tmp_path, run, sizer=sizer, site=SiteConfig())


def test_a_user_cannot_take_all_connections(tmp_path: Path) -> None:
    async def run(_server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        silent = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(16)]
        with contextlib.suppress(ConnectionError):
            assert await ask(request(GOOD)) == ""
        for _, writer in silent:
            writer.close()

    talk(tmp_path, run, trusted=frozenset({os.getuid() + 1}), site=SiteConfig(users=True))


def test_no_submit_waits_for_a_size_that_is_not_known(tmp_path: Path) -> None:
    ended = threading.Event()

    async def run(_server: Server, state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        assert (await ask(request(GOOD))).startswith("RIGHTSIZER 2 HOLD")
        ended.set()
        await responded(state)
        assert (await ask(request(GOOD))).startswith("RIGHTSIZER 2 OK")

    talk(tmp_path, run, sizer=lambda _: (ended.wait(20), OK)[1], site=SiteConfig())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\nEND\n",
        b"RIGHTSIZER 2 PLAN\nEND\n",
        b"x" * 20_000,
        b"x" * 20_000 + b"\nEND\n",
        b"RIGHTSIZER 2 SIZE\n",
    ],
    ids=["silence", "empty", "version", "long", "long with an end", "broken off"],
)
def test_a_nonsensical_request_gets_no_size_and_others_do(tmp_path: Path, data: bytes) -> None:
    async def run(_server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        said = await ask(data)
        assert said == "" or said.startswith("RIGHTSIZER 2 KEEP")
        assert (await ask(request(GOOD))).startswith("RIGHTSIZER 2 OK")

    talk(tmp_path, run)


def test_only_slurmctld_may_name_the_submitter(tmp_path: Path) -> None:
    requests: list[SizingRequest] = []

    async def run(_server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        await ask(request(GOOD, b"uid=12345"))

    for trusted in (frozenset({os.getuid()}), frozenset({os.getuid() + 1})):
        (tmp_path / "s").unlink(missing_ok=True)
        site = SiteConfig(hold_after_s=5.0, users=True)
        talk(tmp_path, run, sizer=lambda q: requests.append(q) or OK, site=site, trusted=trusted)
    assert [q.uid for q in requests] == [12345, os.getuid()]


def test_a_stranger_gets_no_response_if_users_may_not_connect(tmp_path: Path) -> None:
    async def run(_server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        assert "may not send" in await ask(request(GOOD))

    talk(tmp_path, run, trusted=frozenset({os.getuid() + 1}))


def test_after_a_restart_earlier_requests_are_sized_again(tmp_path: Path) -> None:
    requests: list[SizingRequest] = []
    sizer = lambda q: requests.append(q) or OK

    async def first(server: Server, _state: TicketStore, ask: Callable[[bytes], Awaitable[str]]) -> None:
        for deadline in (b"1h", b"2h", b"3h"):
            await ask(request(b"comment=rightsizer: model=gpt2 tokens=1B deadline=" + deadline))
        await ask(request(b"comment=rightsizer: plan=/x.yaml"))
        await asyncio.to_thread(server.save_subjects)

    async def second(server: Server, _state: TicketStore, _ask: Callable[[bytes], Awaitable[str]]) -> None:
        await server.warm_up()

    talk(tmp_path, first, sizer=sizer)
    (tmp_path / "s").unlink(missing_ok=True)
    requests.clear()
    talk(tmp_path, second, sizer=sizer)
    assert [q.comment.split()[1] for q in requests] == ["model=gpt2"]
