"""Runs a function in a child process, with a limit of memory and of time.

Sizing works on what strangers wrote: it may need more memory or time than its caller has, or crash. Then the
child ends, the call raises `ChildError`, and the next call has a new child.
"""

import contextlib
import importlib
import math
import multiprocessing
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rightsizer_engine.values import immutable

_START_TIMEOUT_S = 120.0  # Python and its imports, on a busy machine
_OOM_SCORE = "500"  # without memory the kernel ends the child, not its parent
_ALARM_S = 5.0  # beyond the time limit: the child ends by itself, also if it cannot watch its parent
_WATCH_STACK_BYTES = (
    256 << 10
)  # of the thread that watches the parent; the default counts in the child's data


class ChildError(Exception):
    """The child has no result; the text has the reason."""


@immutable
class ChildLimits:
    """`memory_bytes` bounds the child's data, `time_s` one call.

    A child that holds more than `keep_bytes` after a call is replaced as soon as its successor has started.
    `nice` lets the machine's own services come first.
    """

    memory_bytes: int
    keep_bytes: int
    time_s: float
    nice: int = 10


class BoundedProcess:
    """A child process that calls `function` ("module:name") with one argument at a time. Thread-safe.

    The function returns its errors: an exception ends the child.
    """

    def __init__(self, function: str, limits: ChildLimits) -> None:
        self._function, self._limits = function, limits
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._successor: _Child | None = None  # of a child that has grown: no call waits for its start
        self._closed = False

    def start(self) -> None:
        """Start the child, so that the first call does not wait for it. ChildError if it cannot."""
        with self._lock:
            self._ready_child()

    def call(self, argument: Any, abandoned: threading.Event | None = None) -> Any:
        """The function's result, or ChildError. Set `abandoned`, then `interrupt`, to end the call."""
        with self._lock:
            child = self._ready_child()
            if abandoned is not None and abandoned.is_set():
                raise ChildError("its caller has left")
            try:
                result, reusable = child.ask(argument, self._limits.time_s)
            except ChildError:
                self._end()
                raise
            if not reusable and self._successor is None:
                self._successor = _Child(self._function, self._limits)
            return result

    def interrupt(self) -> None:
        """End the child and the call in progress; a later call has a new child."""
        if (child := self._child) is not None:
            child.kill()

    def close(self) -> None:
        """End the child; a call in progress and all later ones raise ChildError."""
        self._closed = True
        self.interrupt()
        with self._lock:
            self._end()
            self._end()  # its successor

    def _ready_child(self) -> "_Child":
        if self._closed:
            raise ChildError("it is closed")
        if self._successor is not None and self._successor.started:
            self._end()
        if self._child is not None and not self._child.alive:
            self._end()
        if self._child is None:
            self._child = _Child(self._function, self._limits)
        try:
            self._child.wait_until_ready()
        except ChildError:
            self._end()
            raise
        return self._child

    def _end(self) -> None:
        """End the child; its successor, if there is one, takes its place."""
        before, self._child, self._successor = self._child, self._successor, None
        if before is not None:
            before.end()


class _Child:
    """One process and our end of its socket."""

    def __init__(self, function: str, limits: ChildLimits) -> None:
        self._socket, other = multiprocessing.Pipe()
        self._limits = limits
        self._ready = False
        numbers = (other.fileno(), limits.memory_bytes, limits.keep_bytes, limits.time_s, limits.nice)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, function, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def started(self) -> bool:
        """Whether it has imported its function, or ended."""
        return self._ready or self._socket.poll()

    def wait_until_ready(self) -> None:
        """Return when the child has imported its function."""
        if not self._ready:
            self._receive(_START_TIMEOUT_S)
            self._ready = True

    def ask(self, argument: Any, time_s: float) -> tuple[Any, bool]:
        """The result, and whether the child may be used again."""
        with contextlib.suppress(OSError):  # it has ended: the cause follows
            self._socket.send(argument)
        result, reusable = self._receive(time_s)
        return result, reusable

    def _receive(self, timeout_s: float) -> Any:
        try:
            if self._socket.poll(timeout_s):
                return self._socket.recv()
        except (OSError, EOFError):
            raise ChildError(_cause(self._process.wait())) from None
        raise ChildError(f"it takes longer than {timeout_s:g} s")

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kill the child and free its resources."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


def _cause(code: int) -> str:
    """Why a child ended: its exit code, as subprocess gives it."""
    if code == _OUT_OF_MEMORY:
        return "it needs more memory than it may have"
    return f"its process ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


_OUT_OF_MEMORY = 70


def _serve(function: Callable[[Any], Any], socket: Connection, *, keep_bytes: int, time_s: float) -> None:
    """Answer until the parent closes its end or dies."""
    socket.send(None)
    with contextlib.suppress(EOFError):
        while True:
            argument = socket.recv()
            signal.alarm(math.ceil(time_s + _ALARM_S))
            result = function(argument)
            signal.alarm(0)
            socket.send((result, _resident_bytes() <= keep_bytes))


def _end_with_parent(socket: Connection) -> None:
    """Wait until the parent's end is closed, then end this process, also in the middle of a call."""
    parent = select.poll()
    parent.register(socket.fileno(), 0)  # reports POLLHUP only
    parent.poll()
    os._exit(0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _main(name: str, descriptor: str, *limits: str) -> int:
    """The child: `python -m rightsizer_launch.bounded.process`, with the limits in their order."""
    memory_bytes, keep_bytes, time_s, nice = limits
    os.nice(int(nice))
    Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory_bytes), int(memory_bytes)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its children
    module, _, attribute = name.partition(":")
    function: Callable[[Any], Any] = getattr(importlib.import_module(module), attribute)
    try:
        with Connection(int(descriptor)) as socket:
            threading.stack_size(_WATCH_STACK_BYTES)
            threading.Thread(target=_end_with_parent, args=(socket,), daemon=True).start()
            _serve(function, socket, keep_bytes=int(keep_bytes), time_s=float(time_s))
    except MemoryError:
        return _OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
