"""The rendezvous store: a process without training state that outlives every worker.

`python -m rightsizer_launch.worker.rendezvous --host 127.0.0.1 --port 29400` serves until SIGTERM.
"""

import argparse
import contextlib
import datetime as dt
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rightsizer_launch.worker.process_end import die_with_parent
from rightsizer_launch.worker.progress import ENV_DIE_WITH_PARENT
from rightsizer_launch.worker.torch_import import uncollected

_SOON_S = 5.0


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that is free now. If another process takes it first, the store fails with an error."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def reachable(host: str, port: int, *, timeout_s: float = 0.5) -> bool:
    """Whether something accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=timeout_s):
        return True
    return False


def mark_complete(environment: Mapping[str, str] = os.environ) -> None:
    """Record in the store of PET_RDZV_ENDPOINT that the run PET_RDZV_ID is complete.

    torchrun closes the rendezvous both after success and after a final failure, so a late worker needs this
    record to tell them apart. A no-op without a store.
    """
    with contextlib.suppress(RuntimeError):  # torch's DistError: the store has just ended
        store = _store(environment)
        if store is not None:
            store.set(_complete(environment), b"1")


def was_complete(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the run is recorded as complete; waits seconds, since the rendezvous closes first."""
    end_s = time.monotonic() + _SOON_S
    with contextlib.suppress(RuntimeError):
        store = _store(environment)
        while store is not None and time.monotonic() < end_s:
            if store.check([_complete(environment)]):
                return True
            time.sleep(0.2)
    return False


def _complete(environment: Mapping[str, str]) -> str:
    return f"rightsizer/{environment.get('PET_RDZV_ID', '')}/complete"


def _store(environment: Mapping[str, str]) -> Any:
    """A client of the store; None if there is none (torch would log at length)."""
    host, _, port = environment.get("PET_RDZV_ENDPOINT", "").rpartition(":")
    if not host or not port.isdigit() or not reachable(host.strip("[]"), int(port), timeout_s=_SOON_S):
        return None
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # seconds of import

    from rightsizer_launch.worker.signed_rendezvous import signed  # it imports torch

    timeout = dt.timedelta(seconds=_SOON_S)
    store = TCPStore(host.strip("[]"), int(port), is_master=False, wait_for_workers=False, timeout=timeout)
    return signed(store, environment)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the store until SIGTERM or SIGINT, or until the process given by --until ends."""
    parser = argparse.ArgumentParser(prog="rightsizer_launch.worker.rendezvous", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    parser.add_argument("--until", type=int, metavar="PID", help="also end when this process ends")
    options = parser.parse_args(argv)
    if os.environ.get(ENV_DIE_WITH_PARENT):
        die_with_parent(signal.SIGTERM)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    with uncollected():
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # seconds of import

    try:
        store = TCPStore(
            options.host,
            options.port,
            is_master=True,
            wait_for_workers=False,
            multi_tenant=True,
            use_libuv=True,
        )
    except RuntimeError as error:  # torch's DistNetworkError: the port is taken or the host is not local
        sys.stderr.write(f"rendezvous store on {options.host}:{options.port}: {error}\n")
        return 1
    sys.stdout.write(f"rendezvous store on {options.host}:{store.port}\n")
    sys.stdout.flush()
    while not stop.wait(1.0):
        if options.until is not None and not _lives(options.until):
            break
    return 0


def _lives(process: int) -> bool:
    """Whether the process exists: a killed batch script cannot stop the store itself."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
