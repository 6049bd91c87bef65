"""The rules that operator, Slurm daemon and page share, with real child processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rightsizer_launch.bounded.process import ChildError, ChildLimits
from rightsizer_launch.bounded.sizing_pool import SizingPool

MIB = 1 << 20
Make = Callable[..., SizingPool]


def work(argument: dict[str, object]) -> object:
    """Sleep or crash as the argument says; the process's id."""
    if "crash" in argument:
        os.abort()
    if "say" in argument:
        Path(str(argument["say"])).write_text(str(os.getpid()))
    time.sleep(float(str(argument.get("sleep_s", 0))))
    return os.getpid()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    made: list[SizingPool] = []

    def make(processes: int = 1) -> SizingPool:
        limits = ChildLimits(memory_bytes=512 * MIB, keep_bytes=256 * MIB, time_s=60.0)
        made.append(SizingPool("test_sizing_pool:work", limits, processes=processes))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.close()


async def called(pool: SizingPool, tenant: object, **argument: object) -> object:
    async with pool.turn(tenant) as call:
        return await call(argument)


async def written(path: Path) -> int:
    while not path.exists() or not path.read_text():
        await asyncio.sleep(0.01)
    return int(path.read_text())


def has_ended(pid: int) -> bool:
    """Whether a process has ended; its parent may not have reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def test_a_crash_costs_its_caller_its_own_call_only(pool: Make) -> None:
    async def scenario() -> None:
        two = pool(2)
        other = asyncio.create_task(called(two, "b", sleep_s=0.5))
        with pytest.raises(ChildError, match="SIGABRT"):
            await called(two, "a", crash=True)
        assert await other
        assert await called(two, "a")

    asyncio.run(scenario())


def test_a_tenant_has_one_process_at_a_time_and_the_others_the_rest(pool: Make, tmp_path: Path) -> None:
    async def scenario() -> None:
        two = pool(2)
        slow = [asyncio.create_task(called(two, "a", sleep_s=600, say=tmp_path / "a")) for _ in range(3)]
        first = await written(tmp_path / "a")
        assert two.waiting("a") == 2
        assert await called(two, "b") != first
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(scenario())


def test_a_caller_that_leaves_ends_its_call_and_frees_its_process(pool: Make, tmp_path: Path) -> None:
    async def scenario() -> None:
        one = pool()
        leaving = asyncio.create_task(called(one, "a", sleep_s=600, say=tmp_path / "a"))
        pid = await written(tmp_path / "a")
        leaving.cancel()
        assert await called(one, "b") != pid
        assert has_ended(pid)

    asyncio.run(scenario())


def test_callers_that_leave_before_their_call_began_keep_no_other_waiting(pool: Make) -> None:
    async def scenario() -> None:
        one = pool()
        for _ in range(5):
            leaving = asyncio.create_task(called(one, "a", sleep_s=600))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            leaving.cancel()
        assert await called(one, "b")

    asyncio.run(scenario())


def test_closing_ends_calls_in_progress_and_later_ones(pool: Make, tmp_path: Path) -> None:
    async def scenario() -> None:
        one = pool()
        busy = asyncio.create_task(called(one, "a", sleep_s=600, say=tmp_path / "a"))
        pid = await written(tmp_path / "a")
        one.close()
        with pytest.raises(ChildError, match="SIGKILL"):
            await busy
        assert has_ended(pid)

    asyncio.run(scenario())


def test_a_process_ends_in_the_middle_of_a_call_if_its_parent_is_killed(tmp_path: Path) -> None:
    script = f"""
from rightsizer_launch.bounded.process import BoundedProcess, ChildLimits
limits = ChildLimits(memory_bytes=2**29, keep_bytes=2**28, time_s=3600.0)
BoundedProcess("test_sizing_pool:work", limits).call({{"say": {str(tmp_path / "a")!r}, "sleep_s": 600}})
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment)
    pid = asyncio.run(written(tmp_path / "a"))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    while not has_ended(pid):  # pytest's own limit ends a child that stays
        time.sleep(0.01)
