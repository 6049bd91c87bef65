"""`rightsizer advise`."""

from rightsizer_cli.commands.advise.source import JobSource
from rightsizer_cli.exits import OK
from rightsizer_cli.flags import grouped
from rightsizer_cli.options import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags, Json, PlanFile

__all__ = ["advise"]


@grouped
def advise(
    *,
    file: PlanFile = None,
    source: JobSource,
    job: JobFlags,
    goal: GoalFlags,
    hardware: HardwareFlags,
    layout: FixedLayoutFlags,
    json: Json = False,
) -> int:
    """Say whether a running job of your own should keep its GPUs, or have fewer or more. Read-only."""
    from rightsizer_cli.commands.advise.inquiry import Flags, inquire
    from rightsizer_cli.commands.advise.page import print_advice

    print_advice(*inquire(source, file, Flags(job, goal, hardware, layout)), as_json=json)
    return OK
