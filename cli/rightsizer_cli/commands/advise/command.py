"""`rightsizer advise`."""

from rightsizer_cli.commands.advise.source import JobSource
from rightsizer_cli.commands.option_groups import grouped
from rightsizer_cli.commands.options import Json, PlanFile
from rightsizer_cli.output.exits import OK
from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags


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
