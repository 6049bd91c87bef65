"""The end of a job's process: with its parent, with a recorded crash, or with a completed training."""

import atexit
import contextlib
import ctypes
import json
import multiprocessing.util
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


def die_with_parent(number: int) -> None:
    """Request a signal on the parent's death; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def guard() -> None:
    """Let a worker die with its torchrun agent and record a crash in torchrun's format."""
    die_with_parent(signal.SIGKILL)
    sys.excepthook = _record_crash


def keep_signals_from_children() -> None:
    """Let multiprocessing's processes leave this one's process group, to which torchrun sends SIGTERM.

    A DataLoader's workers end by that signal at once; the step that saves still needs them. Without their
    parent they end by themselves.
    """
    multiprocessing.util.register_after_fork(guard, lambda _: os.setpgid(0, 0))  # kept as long as its key


def at_script_end(act: Callable[[], None]) -> None:
    """Call `act` when the script ends, unless an exception ends it."""
    atexit.register(lambda: None if hasattr(sys, "last_type") else act())


def _record_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None, /) -> None:
    """Write torchrun's error file, so that the worker's error reaches the user; then print the traceback."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not issubclass(kind, KeyboardInterrupt):
        details = {
            "py_callstack": "".join(traceback.format_exception(kind, error, trace)),
            "timestamp": str(int(time.time())),
        }
        with contextlib.suppress(OSError), Path(path).open("w") as file:
            json.dump({"message": {"message": f"{kind.__name__}: {error}", "extraInfo": details}}, file)
    sys.__excepthook__(kind, error, trace)
