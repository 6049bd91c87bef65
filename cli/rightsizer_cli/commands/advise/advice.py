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
class Measured:
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
    measured: Measured

    @property
    def measured_to_predicted(self) -> float:
        """The measured rate over the one predicted for this layout."""
        return self.measured.tokens_per_s / self.option.tokens_per_s


def advise(request: Request, measured: Measured) -> Advice:
    """Decide as for a job of ours that has trained for `window_s`. InputError if nothing is left to train."""
    tokens_left = request.workload.tokens - measured.tokens_done
    if tokens_left <= 0:
        raise InputError(
            "--tokens-done", value=measured.tokens_done, remedy="is not less than --tokens: nothing is left"
        )
    free = replace(request, deadline_s=None, max_usd=None, spare_nodes=0, may_idle=False)
    answer = _present(free, measured.gpus)
    option = answer.option
    batch = replace(answer.request.workload, global_batch_sequences=option.global_batch_sequences)
    free = replace(
        free,
        framework=answer.request.framework,
        stacks=(),
        workload=batch,
        batch_tolerance=0.0,
        gpu_counts=(),
        min_gpus=1,
    )
    scaling = PlanScaling(request=free, option=option)
    step_s = option.global_batch_sequences * batch.sequence_tokens / measured.tokens_per_s
    steps = int(measured.window_s / step_s)
    reading = Reading(
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
        decision=decide(reading, running, limits, History(), now_s=0.0),
        option=option,
        sizes=_fastest(sizes),
        tokens_left=tokens_left,
        measured=measured,
    )


def _present(request: Request, gpus: int) -> Plan:
    """The best layout on as many GPUs as the job has, within what the request pins."""
    answer = size(replace(request, gpu_counts=(gpus,), min_gpus=gpus, max_gpus=gpus))
    if not isinstance(answer, Plan):
        raise InputError("--gpus", value=gpus, remedy=f"no layout runs there: {answer.reason}")
    return answer


def _fastest(sizes: tuple[JobSize, ...]) -> tuple[JobSize, ...]:
    """The fastest layout of each size."""
    best: dict[int, JobSize] = {}
    for each in sizes:
        if each.gpus not in best or each.tokens_per_s > best[each.gpus].tokens_per_s:
            best[each.gpus] = each
    return tuple(best[gpus] for gpus in sorted(best))
