"""Real children with real limits; the functions that they run are below."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rightsizer_launch.bounded.process import BoundedProcess, ChildError, ChildLimits

while Path(os.environ.get("NO_CHILD_STARTS_WHILE", "no such file")).exists():
    time.sleep(0.01)

MIB = 1 << 20
Make = Callable[..., BoundedProcess]


def own_pid(argument: object) -> tuple[int, object]:
    return os.getpid(), argument


def fill(mib: int) -> int:
    return int(np.ones(mib * MIB, dtype=np.uint8)[-1])


def keep(mib: int) -> int:
    KEPT.append(np.ones(mib * MIB, dtype=np.uint8))
    return os.getpid()


KEPT: list[object] = []


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def misbehave(how: str) -> None:
    if how == "raise":
        raise RuntimeError
    os.abort()


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A child that runs a function of this file."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    made: list[BoundedProcess] = []

    def make(function: Callable[..., object], *, keep_mib: int = 256, time_s: float = 60.0) -> BoundedProcess:
        limits = ChildLimits(memory_bytes=512 * MIB, keep_bytes=keep_mib * MIB, time_s=time_s)
        made.append(BoundedProcess(f"test_process:{function.__name__}", limits))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_one_child_serves_every_call(child: Make) -> None:
    process = child(own_pid)
    first, second = process.call("a"), process.call([1])
    assert (first, second) == ((first[0], "a"), (first[0], [1]))
    assert first[0] != os.getpid()


@pytest.mark.slow
def test_a_call_over_the_memory_limit_fails_and_the_next_gets_a_new_child(child: Make) -> None:
    process = child(fill)
    with pytest.raises(ChildError, match="more memory"):
        process.call(600)
    assert process.call(100) == 1


@pytest.mark.slow
def test_a_call_beyond_its_time_is_ended(child: Make) -> None:
    process = child(sleep, time_s=0.5)
    with pytest.raises(ChildError, match=r"longer than 0\.5 s"):
        process.call(600)
    assert process.call(0) is None


@pytest.mark.parametrize(("how", "cause"), [("raise", "exit code 1"), ("abort", "SIGABRT")])
def test_a_crash_ends_the_call_only(child: Make, how: str, cause: str) -> None:
    with pytest.raises(ChildError, match=cause):
        child(misbehave).call(how)


@pytest.mark.slow
def test_a_grown_child_serves_until_its_successor_has_started(
    child: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = child(keep, keep_mib=200)
    first, waits = process.call(0), tmp_path / "file"
    waits.touch()
    monkeypatch.setenv("NO_CHILD_STARTS_WHILE", str(waits))
    assert [process.call(mib) for mib in (300, 0, 0)] == [first] * 3
    waits.unlink()
    while process.call(0) == first:
        time.sleep(0.05)
    assert process.call(0) == process.call(0)


def test_if_a_child_that_has_grown_ends_its_successor_takes_its_place(child: Make) -> None:
    process = child(keep, keep_mib=200)
    process.call(300)
    with pytest.raises(ChildError, match="more memory"):
        process.call(400)
    assert process.call(0) == process.call(0)


def test_closing_ends_a_call_in_progress(child: Make) -> None:
    process = child(sleep)
    process.start()
    threading.Timer(0.3, process.close).start()
    with pytest.raises(ChildError, match="SIGKILL"):
        process.call(600)
    with pytest.raises(ChildError, match="closed"):
        process.call(0)


def test_a_function_that_is_not_there_is_an_error(child: Make) -> None:
    with pytest.raises(ChildError, match="exit code 1"):
        BoundedProcess(
            "no_such_module:f", ChildLimits(memory_bytes=512 * MIB, keep_bytes=MIB, time_s=5.0)
        ).start()
