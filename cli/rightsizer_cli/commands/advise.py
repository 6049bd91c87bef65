"""`rightsizer advise`."""

from rightsizer_cli.commands.options import Json, PlanFile, grouped
from rightsizer_cli.output.exits import OK
from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags, JobSource


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
    from rightsizer_cli.output.advice import print_advice
    from rightsizer_cli.requests.inputs import errors_named_after
    from rightsizer_cli.requests.running_job import running_job
    from rightsizer_engine.resize.existing_job import advise as advise_on

    found = running_job(source, file, job=job, goal=goal, hardware=hardware, layout=layout)
    with errors_named_after({"tokens_done": "--tokens-done", "gpus": "--gpus"}):
        advice = advise_on(found.request, found.measured)
    print_advice(found.job, advice, found.notes, as_json=json)
    return OK
