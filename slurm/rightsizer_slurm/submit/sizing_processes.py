"""The child processes that size jobs. They read what users wrote, in comments and files, within limits."""

import contextlib
import datetime as dt
import logging
import queue
from functools import partial

from rightsizer_engine.values import immutable
from rightsizer_launch.bounded.process import BoundedProcess, ChildError, Limits
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.cluster.untrusted_text import one_line
from rightsizer_slurm.submit import plan_files
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.response import respond

_LOG = logging.getLogger("rightsizer.slurm")
_LIMITS = Limits(memory_bytes=1 << 30, keep_bytes=400 << 20, time_s=20.0)
"""A cold sizing takes 0.1 to 0.5 s and 0.1 to 0.3 GB; the tables of sixteen models stay."""


@immutable
class SizingTask:
    """A request, and all that its response depends on."""

    request: SizingRequest
    cluster: SlurmCluster
    site: SiteConfig
    limits: AccountingLimits
    now: dt.datetime


def size(task: SizingTask) -> SizingResponse:
    """The response. Runs in a child process."""
    return respond(
        task.request,
        cluster=task.cluster,
        site=task.site,
        now=task.now,
        plan_of_file=partial(plan_files.read, uid=task.request.uid),
        limits=task.limits,
    )


class SizingProcesses:
    """Some child processes; a call waits for a free one. A request that ends its child is not sized."""

    def __init__(self, count: int, *, limits: Limits = _LIMITS) -> None:
        self._all = [BoundedProcess(f"{__name__}:{size.__name__}", limits) for _ in range(count)]
        self._free: queue.LifoQueue[BoundedProcess] = queue.LifoQueue()  # the last one has the most tables
        for child in self._all:
            self._free.put(child)

    def start(self) -> None:
        """Start all, so that no request waits for it."""
        for child in self._all:
            with contextlib.suppress(ChildError):  # the first call says why
                child.start()

    def __call__(self, task: SizingTask) -> SizingResponse:
        """The response; runs in a thread."""
        child = self._free.get()
        try:
            response: SizingResponse = child.call(task)
        except ChildError as error:
            _LOG.error("uid=%d not sized: %s: %s", task.request.uid, error, one_line(task.request.comment))
            return SizingResponse(verdict=SizingVerdict.KEEP, say=str(error), code="fault")
        finally:
            self._free.put(child)
        return response

    def close(self) -> None:
        """End all child processes."""
        for child in self._all:
            child.close()
