"""`rightsizer explain`."""

from rightsizer_cli.exits import NO_PLAN, OK
from rightsizer_cli.flags import grouped
from rightsizer_cli.options import (
    FixedLayoutFlags,
    GoalFlags,
    HardwareFlags,
    JobFlags,
    Json,
    NoCalibration,
    PlanFile,
)

__all__ = ["explain"]


@grouped
def explain(
    *,
    file: PlanFile = None,
    job: JobFlags,
    goal: GoalFlags,
    hardware: HardwareFlags,
    layout: FixedLayoutFlags,
    json: Json = False,
    no_calibration: NoCalibration = False,
) -> int:
    """Say why this plan: what binds, what was rejected, and where every figure comes from."""
    from rightsizer.search.plan import (
        Plan,
    )
    from rightsizer.search.plan import (
        plan as decide,
    )
    from rightsizer_cli.commands.explain.explanation import print_explanation
    from rightsizer_cli.inputs import calibrated, read

    _, request = read(file, job, goal, hardware, layout)
    answer = decide(calibrated(request, ignore=no_calibration))
    print_explanation(answer, as_json=json)
    return OK if isinstance(answer, Plan) else NO_PLAN
