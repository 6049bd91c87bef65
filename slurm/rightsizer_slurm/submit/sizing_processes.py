"""The child processes that size jobs. They read what users wrote, in comments and files, within limits."""

import datetime as dt
from functools import partial

from rightsizer_engine.values import immutable
from rightsizer_launch.bounded.process import ChildLimits
from rightsizer_launch.bounded.sizing_pool import SizingPool
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit import plan_files
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse
from rightsizer_slurm.submit.response import respond

_LIMITS = ChildLimits(memory_bytes=1 << 30, keep_bytes=400 << 20, time_s=20.0)
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


def sizing_pool(processes: int, *, limits: ChildLimits = _LIMITS) -> SizingPool:
    """The child processes that size; users take turns."""
    return SizingPool(f"{__name__}:{size.__name__}", limits, processes=processes)
