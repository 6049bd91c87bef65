"""torchrun with an honest exit code: `python -m rightsizer_launch.worker.entrypoint [torchrun's arguments]`.

torchrun exits 1 whatever happened. This runs it in the same process and exits with the worker's own code (128
+ n for signal n), with 75 when the job was asked to stop and saved first, and with 0 only when the training
is complete, which the others tell a worker that comes when all is done. In a pod, where nobody supervises it,
it also gives up by the plan's restart budget (78), leaves the reason where Kubernetes looks for it, and
starts over by itself when the rendezvous store went away.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rightsizer_launch.worker import rendezvous, restart_monitor
from rightsizer_launch.worker.agent import die_with_parent
from rightsizer_launch.worker.progress import ENV_DIE_WITH_PARENT, ENV_OUTCOME, EXIT_STOPPED

__all__ = ["exit_code", "main"]


def exit_code(*, worker: int, stopped: bool) -> int:
    """The process's exit code for a worker's (negative: killed by that signal)."""
    if stopped:
        return EXIT_STOPPED
    return 128 - worker if worker < 0 else worker


def main(argv: Sequence[str] | None = None) -> int:
    """Run torchrun; its own command line and PET_* variables apply."""
    if os.environ.pop(ENV_DIE_WITH_PARENT, ""):
        die_with_parent(signal.SIGTERM)
    arguments = list(sys.argv[1:] if argv is None else argv)
    if restart_monitor.unsupervised():
        # a container's first process ignores what it does not handle; torchrun's own handler comes late
        signal.signal(signal.SIGTERM, _obey)
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as scratch:
        run = _pod if restart_monitor.unsupervised() else _run
        code, again = run(arguments, Path(scratch))
    if again and restart_monitor.unsupervised():
        time.sleep(1)  # the store comes back, maybe elsewhere; the same pod joins it with a clean process
        command = [sys.executable, "-m", "rightsizer_launch.worker.entrypoint", *arguments]
        os.execv(sys.executable, command)  # noqa: S606 -- our own program
    return code


def _obey(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def _pod(arguments: list[str], scratch: Path) -> tuple[int, bool]:
    """The same where no supervisor counts failures."""
    logs = scratch / "logs"
    os.environ["PET_LOG_DIR"] = str(logs)
    with restart_monitor.Patience(logs) as watch:
        code, again = _run(arguments, scratch)
    words = restart_monitor.last_words(logs)
    if watch.reason:
        restart_monitor.leave_word(f"{watch.reason}: {words}" if words else watch.reason)
        return restart_monitor.EXIT_GIVEN_UP, False
    if code not in {0, EXIT_STOPPED}:
        restart_monitor.leave_word(words)
    return code, again


def _run(arguments: list[str], scratch: Path) -> tuple[int, bool]:
    """The exit code, and whether to try again because the rendezvous was lost."""
    from torch.distributed import run  # noqa: PLC0415 -- seconds of import
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousError  # noqa: PLC0415

    from rightsizer_launch.worker import signed_rendezvous  # noqa: PLC0415 -- it imports torch

    outcome = scratch / "outcome"
    os.environ[ENV_OUTCOME] = str(outcome)
    try:
        signed_rendezvous.enable()
    except RendezvousError as error:
        sys.stderr.write(f"rightsizer: {error}\n")
        return os.EX_USAGE, False
    worker, again = 0, False
    try:
        run.main(arguments)
    except ChildFailedError as error:
        worker = error.get_first_failure()[1].exitcode
    except SignalException as error:
        worker = -int(error.sigval)
    except RendezvousError as error:
        closed = isinstance(error, RendezvousClosedError)
        if closed and rendezvous.was_complete():
            sys.stderr.write("rightsizer: the others have trained to the end without this worker\n")
            return 0, False
        sys.stderr.write(f"rightsizer: the rendezvous is gone: {error}\n")
        worker, again = os.EX_UNAVAILABLE, not closed
    code = exit_code(worker=worker, stopped=outcome.exists())
    if code == 0:
        rendezvous.leave_complete()
    return code, again


if __name__ == "__main__":
    sys.exit(main())
