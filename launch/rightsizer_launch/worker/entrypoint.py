"""torchrun with the worker's exit code: `python -m rightsizer_launch.worker.entrypoint [ARGUMENTS]`.

torchrun always exits with 1 on failure. The entrypoint runs it in the same process and exits with the
worker's own code (128 + n for signal n), with 75 if the job saved and stopped on request, and with 0 only if
the training is complete. A worker that joins after the end learns that from the rendezvous store. In a pod,
which has no supervisor, the entrypoint also enforces the plan's restart budget (exit code 78), writes the
reason to the termination log, and restarts itself if the rendezvous store was lost.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from rightsizer_launch.worker import progress, rendezvous, restart_monitor, worker_exits
from rightsizer_launch.worker.process_end import die_with_parent
from rightsizer_launch.worker.progress import ENV_DIE_WITH_PARENT, ENV_OUTCOME, EXIT_STOPPED, STOP_SIGNAL
from rightsizer_launch.worker.torch_import import uncollected


def exit_code(*, worker: int, stopped: bool) -> int:
    """The process's exit code for a worker's (negative: killed by that signal)."""
    if stopped:
        return EXIT_STOPPED
    return 128 - worker if worker < 0 else worker


def main(argv: Sequence[str] | None = None, *, torchrun: Callable[[list[str]], None] | None = None) -> int:
    """Run torchrun; its own command line and PET_* variables apply. `torchrun` is its main function."""
    if os.environ.pop(ENV_DIE_WITH_PARENT, ""):
        die_with_parent(signal.SIGTERM)
    signal.signal(STOP_SIGNAL, _stop)
    arguments = list(sys.argv[1:] if argv is None else argv)
    if restart_monitor.unsupervised():
        # PID 1 ignores signals without a handler, and torchrun installs its handler late
        signal.signal(signal.SIGTERM, _exit_on_signal)
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as scratch:
        run = _pod if restart_monitor.unsupervised() else _run
        code, again = run(arguments, Path(scratch), torchrun)
    if again and restart_monitor.unsupervised():
        time.sleep(1)  # the store restarts, maybe on another node; this pod joins it with a new process
        command = [sys.executable, "-m", "rightsizer_launch.worker.entrypoint", *arguments]
        os.execv(sys.executable, command)  # noqa: S606 -- our own program
    return code


def _stop(_number: int, _frame: FrameType | None) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def _pod(
    arguments: list[str], scratch: Path, torchrun: Callable[[list[str]], None] | None
) -> tuple[int, bool]:
    """Run with a restart monitor: a pod has no supervisor."""
    logs = scratch / "logs"
    os.environ["PET_LOG_DIR"] = str(logs)
    with restart_monitor.RestartMonitor(logs) as monitor:
        worker_exits.report(monitor.worker_failed)
        code, again = _run(arguments, scratch, torchrun)
    if monitor.reason:
        code, again = monitor.exit_code, False
    if code == 0:
        restart_monitor.write_termination_message(progress.last_numbers())
    elif code != EXIT_STOPPED:
        _explain("; ".join(filter(None, (monitor.reason, monitor.cause))), restart_monitor.last_error(logs))
    return code, again


def _explain(why: str, error: str) -> None:
    """Leave the reason of a failure to Kubernetes.

    Without a recorded error the reason is the last line of the log: the termination message stays empty, so
    the kubelet fills it with the log's last lines, which are the worker's.
    """
    if error:
        restart_monitor.write_termination_message(f"{why}: {error}" if why else error)
    elif why:
        sys.stderr.write(f"{restart_monitor.LAST_LINE}{why}\n")
        sys.stderr.flush()


def _run(
    arguments: list[str], scratch: Path, torchrun: Callable[[list[str]], None] | None
) -> tuple[int, bool]:
    """The exit code, and whether to retry because the rendezvous was lost."""
    with uncollected():
        from torch.distributed import run  # seconds of import
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousError

        from rightsizer_launch.worker import signed_rendezvous  # it imports torch

    outcome = scratch / "outcome"
    os.environ[ENV_OUTCOME] = str(outcome)
    try:
        signed_rendezvous.enable()
    except RendezvousError as error:
        sys.stderr.write(f"rightsizer: {error}\n")
        return os.EX_USAGE, False
    worker, again = 0, False
    try:
        (torchrun or run.main)(arguments)
    except ChildFailedError as error:
        worker = error.get_first_failure()[1].exitcode
    except SignalException as error:
        worker = -int(error.sigval)
    except RendezvousError as error:
        closed = isinstance(error, RendezvousClosedError)
        if closed and rendezvous.was_complete():
            sys.stderr.write("rightsizer: the training is already complete\n")
            return 0, False
        sys.stderr.write(f"rightsizer: lost the rendezvous: {error}\n")
        worker, again = os.EX_UNAVAILABLE, not closed
    code = exit_code(worker=worker, stopped=outcome.exists())
    if code == 0:
        rendezvous.mark_complete()
    return code, again


if __name__ == "__main__":
    sys.exit(main())
