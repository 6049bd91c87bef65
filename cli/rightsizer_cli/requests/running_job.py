"""The policy's input from a job's own description, its log and the flags."""

import time
from dataclasses import replace
from pathlib import Path

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.untrusted_text import read_text
from rightsizer_cli.requests.files import read_stdin
from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags, JobSource
from rightsizer_cli.requests.inputs import calibrated, read, read_over
from rightsizer_cli.requests.log_rate import LogRate, rate_of
from rightsizer_engine.errors import InputError
from rightsizer_engine.resize.existing_job import MeasuredJob
from rightsizer_engine.search.types import Request
from rightsizer_engine.units import parse_duration_s, parse_tokens
from rightsizer_engine.values import immutable
from rightsizer_launch.running.existing_job import ExistingJob
from rightsizer_operator.kubectl.client import Client
from rightsizer_operator.kubectl.jobs import kubernetes_job
from rightsizer_slurm.cluster.comment import is_ours, parse, plan_of
from rightsizer_slurm.cluster.existing_job import slurm_job

_LOG_LINES = 5000


@immutable
class RunningJobRequest:
    """A running job, its plan's request, what was measured of it, and the source of each figure."""

    job: ExistingJob
    request: Request
    measured: MeasuredJob
    notes: tuple[str, ...]


def running_job(
    source: JobSource,
    file: Path | None,
    *,
    job: JobFlags,
    goal: GoalFlags,
    hardware: HardwareFlags,
    layout: FixedLayoutFlags,
) -> RunningJobRequest:
    """Find the job, read its plan and its log; what the options state comes before what was found."""
    client = Client.of(source) if source.kubernetes else None
    found = _found(source, client, goal, hardware)
    hardware = replace(
        hardware,
        gpu=hardware.gpu or [found.gpu],
        gpus_per_node=hardware.gpus_per_node or found.gpus_per_node or None,
    )
    groups = (job, replace(goal, gpus=None), hardware, layout)
    if file is None and is_ours(found.plan):
        plan, request = read_over(plan_of(parse(found.plan)), *groups)
    else:
        plan, request = read(file, *groups)
    request = calibrated(request, ignore=False)
    measured, notes = _measured(found, source, plan, request, client)
    return RunningJobRequest(job=found, request=request, measured=measured, notes=notes)


def _found(source: JobSource, client: Client | None, goal: GoalFlags, hardware: HardwareFlags) -> ExistingJob:
    """The job as it runs, or as the options describe it."""
    gpus, named = goal.gpus, hardware.gpu
    if client is not None:
        found = kubernetes_job(client, source.kubernetes)
    elif source.slurm is not None:
        found = slurm_job(source.slurm)
    elif gpus and named:
        found = ExistingJob(name="the job", gpus=gpus, gpu="", gpus_per_node=0, started_s=0.0)
    else:
        remedy = "name the job, or --slurm JOBID, or its --gpus and --gpu"
        raise InputError("--kubernetes", value="", remedy=remedy)
    if not found.gpu and not named:
        raise InputError("--gpu", value="", remedy=f"the GPU type of {found.name} is unknown; name it")
    return replace(found, gpus=gpus or found.gpus)


def _measured(
    found: ExistingJob, source: JobSource, plan: TrainingPlan, request: Request, client: Client | None
) -> tuple[MeasuredJob, tuple[str, ...]]:
    workload, now_s = request.workload, time.time()
    batch_tokens = workload.global_batch_sequences * workload.sequence_tokens
    trained_for_s = now_s - found.started_s if found.started_s else None
    said = None
    if source.tokens_per_second is None:
        said = rate_of(_log(source, client), batch_tokens=batch_tokens, gpus=found.gpus)
    rate = source.tokens_per_second or (said.tokens_per_s if said else 0.0)
    done, notes = _done(source, said, batch_tokens, rate, trained_for_s)
    window_s = parse_duration_s(source.measured_over, field="--measured-over")
    deadline_s = request.deadline_s
    if deadline_s is not None and trained_for_s and plan.spec.deadline and plan.spec.deadline.finish_within:
        deadline_s -= trained_for_s
    measured = MeasuredJob(
        gpus=found.gpus,
        tokens_per_s=rate,
        tokens_done=done,
        window_s=min(window_s, trained_for_s or window_s),
        checkpoint_interval_s=parse_duration_s(source.checkpoint_every, field="--checkpoint-every"),
        deadline_left_s=deadline_s,
        confidence=request.confidence,
    )
    if said is not None:
        notes = (f"{said.said}, the median of {said.lines} lines of the log", *notes)
    return measured, notes


def _done(
    source: JobSource, said: LogRate | None, batch_tokens: float, rate: float, trained_for_s: float | None
) -> tuple[float, tuple[str, ...]]:
    """Tokens trained so far, and the assumptions."""
    if source.tokens_done is not None:
        return 0.0 if source.tokens_done == "0" else parse_tokens(
            source.tokens_done, field="--tokens-done"
        ), ()
    if said is not None and said.step is not None:
        return said.step * batch_tokens, (f"tokens trained so far: step {said.step} of the log",)
    if trained_for_s is not None:
        return rate * trained_for_s, ("tokens trained so far: the rate times the age of its pods or job",)
    raise InputError(
        "--tokens-done", value="", remedy="say how many tokens are trained; neither log nor job do"
    )


def _log(source: JobSource, client: Client | None) -> str:
    if source.log is not None and str(source.log) == "-":
        return read_stdin(field="--log")
    if source.log is not None:
        return read_text(source.log, field="--log")
    if client is None:
        raise InputError("--log", value="", remedy="name the job's log, or give --tokens-per-second")
    return client.call("logs", source.kubernetes.lower(), f"--tail={_LOG_LINES}", "--all-containers")
