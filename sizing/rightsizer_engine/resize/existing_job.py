"""Advice for an existing job, to keep its GPUs or take fewer or more: the resize policy on measurements."""

from dataclasses import replace

from rightsizer_engine.domain.reading import Phase, Reading
from rightsizer_engine.errors import InputError
from rightsizer_engine.resize.policy import decide
from rightsizer_engine.resize.scaling import PlanScaling
from rightsizer_engine.resize.types import Decision, History, JobSize, Limits, Pressure, Running
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Option, Plan, Request
from rightsizer_engine.values import immutable

_SAMPLES = 60
_WARM_UP_S = 300.0


@immutable
class MeasuredJob:
    """The measurements of the job: its rate over `window_s`, its position, its checkpoint interval."""

    gpus: int
    tokens_per_s: float
    tokens_done: float
    window_s: float
    checkpoint_interval_s: float
    deadline_left_s: float | None
    confidence: float = 0.9


@immutable
class Advice:
    """The policy's decision, the sizes that it compared, and the layout that the job is taken to have."""

    decision: Decision
    option: Option
    sizes: tuple[JobSize, ...]
    tokens_left: float
    measured: MeasuredJob

    @property
    def measured_to_predicted(self) -> float:
        """The measured rate over the one predicted for this layout."""
        return self.measured.tokens_per_s / self.option.tokens_per_s


def advise(request: Request, measured: MeasuredJob) -> Advice:
    """Decide as for a job of ours that has trained for `window_s`.

    Raises InputError if nothing is left to train, or if no layout runs on the job's GPUs.
    """
    tokens_left = request.workload.tokens - measured.tokens_done
    if tokens_left <= 0:
        remedy = "is not less than --tokens: nothing is left"
        raise InputError("tokens_done", value=measured.tokens_done, remedy=remedy)
    free, option = _present_layout(request, measured.gpus)
    scaling = PlanScaling(request=free, option=option)
    step_s = option.global_batch_sequences * free.workload.sequence_tokens / measured.tokens_per_s
    steps = int(measured.window_s / step_s)
    running = Running(
        gpus=measured.gpus,
        layout=option.layout,
        scaling=scaling,
        tokens_left=tokens_left,
        deadline_left_s=measured.deadline_left_s,
        confidence=measured.confidence,
        trained_s=measured.window_s + _WARM_UP_S,
    )
    limits = Limits(
        checkpoint_interval_s=measured.checkpoint_interval_s, pressure=Pressure.ALWAYS, warm_up_s=_WARM_UP_S
    )
    sizes = scaling.sizes(gpus=measured.gpus, tokens_per_s=measured.tokens_per_s, steps=max(1, steps))
    return Advice(
        decision=decide(_reading(measured, steps), running, limits, History(), now_s=0.0),
        option=option,
        sizes=_fastest(sizes),
        tokens_left=tokens_left,
        measured=measured,
    )


def _present_layout(request: Request, gpus: int) -> tuple[Request, Option]:
    """The request of the job's other sizes, at its batch and framework, and the best layout on its GPUs."""
    free = replace(request, deadline_s=None, max_usd=None, spare_nodes=0, may_idle=False)
    present = _present(free, gpus)
    option = present.option
    batch = replace(present.request.workload, global_batch_sequences=option.global_batch_sequences)
    free = replace(
        free,
        framework=present.request.framework,
        stacks=(),
        workload=batch,
        batch_tolerance=0.0,
        gpu_counts=(),
        min_gpus=1,
    )
    return free, option


def _reading(measured: MeasuredJob, steps: int) -> Reading:
    """The measurement as a reading of a job that trains and was sampled throughout."""
    return Reading(
        window_s=measured.window_s,
        age_s=0.0,
        coverage=1.0,
        samples=_SAMPLES,
        gpus=measured.gpus,
        tokens_per_s=measured.tokens_per_s,
        tokens_done=measured.tokens_done,
        steps=steps,
        window_steps=steps,
        phase=Phase.TRAINING,
    )


def _present(request: Request, gpus: int) -> Plan:
    """The best layout on as many GPUs as the job has, within what the request pins."""
    result = size(replace(request, gpu_counts=(gpus,), min_gpus=gpus, max_gpus=gpus))
    if not isinstance(result, Plan):
        raise InputError("gpus", value=gpus, remedy=f"no layout runs there: {result.reason}")
    return result


def _fastest(sizes: tuple[JobSize, ...]) -> tuple[JobSize, ...]:
    """The fastest layout of each size."""
    best: dict[int, JobSize] = {}
    for each in sizes:
        if each.gpus not in best or each.tokens_per_s > best[each.gpus].tokens_per_s:
            best[each.gpus] = each
    return tuple(best[gpus] for gpus in sorted(best))
