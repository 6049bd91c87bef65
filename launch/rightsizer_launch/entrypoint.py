"""torchrun with an honest exit code: `python -m rightsizer_launch.entrypoint [torchrun's arguments]`.

torchrun exits 1 whatever happened. This runs it in the same process and exits with the worker's own code (128
+ n for signal n), with 75 when the job was asked to stop and saved first, and with 0 only when the training
is complete.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rightsizer_launch.agent import die_with_parent
from rightsizer_launch.progress import ENV_DIE_WITH_PARENT, ENV_OUTCOME, EXIT_STOPPED

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
    from torch.distributed import run  # noqa: PLC0415 -- seconds of import
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.elastic.rendezvous import RendezvousError  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="rightsizer-") as scratch:
        outcome = Path(scratch) / "outcome"
        os.environ[ENV_OUTCOME] = str(outcome)
        worker = 0
        try:
            run.main(list(sys.argv[1:] if argv is None else argv))
        except ChildFailedError as error:
            worker = error.get_first_failure()[1].exitcode
        except SignalException as error:
            worker = -int(error.sigval)
        except RendezvousError as error:
            sys.stderr.write(f"rightsizer: the rendezvous is gone: {error}\n")
            worker = os.EX_UNAVAILABLE
        return exit_code(worker=worker, stopped=outcome.exists())


if __name__ == "__main__":
    sys.exit(main())
