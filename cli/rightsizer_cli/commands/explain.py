"""`rightsizer explain`."""

from rightsizer_cli.commands.options import Json, NoCalibration, PlanFile, grouped
from rightsizer_cli.output.exits import NO_PLAN, OK
from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags


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
    from rightsizer_cli.output.explanation import print_explanation
    from rightsizer_cli.requests.inputs import calibrated, read
    from rightsizer_engine.search.size import size
    from rightsizer_engine.search.types import Plan

    _, request = read(file, job, goal, hardware, layout)
    result = size(calibrated(request, ignore=no_calibration))
    print_explanation(result, as_json=json)
    return OK if isinstance(result, Plan) else NO_PLAN
