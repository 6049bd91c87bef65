"""The resize policy: keep, grow, shrink, relayout or flag a running job, from its measurements. Pure.

Low utilisation alone never shrinks a job. A job shrinks only if, at the measured rate, the smaller size meets
the deadline with margin and saves more GPU-hours than the restart costs. Missing data never triggers a
resize. Growing needs a short window, shrinking a long one. Thresholds and their sources: data/resize.json.
"""

from dataclasses import replace

from rightsizer_engine.domain.reading import GPU_METRICS, Missing, Reading, cleaned
from rightsizer_engine.estimate.parameters import Parameters, load_resize
from rightsizer_engine.resize.candidates import CandidateSizes, SizeChoice, candidate_sizes, choose_size
from rightsizer_engine.resize.diagnosis import Diagnosis, diagnose
from rightsizer_engine.resize.preconditions import (
    may_grow,
    may_resize,
    may_shrink,
    missing_data,
    unusable_input,
)
from rightsizer_engine.resize.spare import choose_spare
from rightsizer_engine.resize.types import (
    Action,
    Bottleneck,
    Decision,
    History,
    JobSize,
    Limits,
    Mode,
    Pressure,
    Running,
)
from rightsizer_engine.units import format_count, format_duration
from rightsizer_engine.values import immutable


def window_s(limits: Limits, parameters: Parameters | None = None) -> float:
    """The window of measurements that a decision needs: two checkpoint intervals, at least the minimum."""
    p = parameters or load_resize()
    return max(limits.least_window_s, p.window_checkpoints * (limits.checkpoint_interval_s or 0.0))


def decide(
    reading: Reading,
    running: Running,
    limits: Limits,
    history: History,
    *,
    now_s: float,
    parameters: Parameters | None = None,
) -> Decision:
    """Decide about one job. `now_s` is on the same clock as the history's times."""
    p = parameters or load_resize()
    reading = cleaned(reading)
    inputs = _Inputs(
        reading=reading,
        running=running,
        limits=limits,
        history=history,
        diagnosis=diagnose(_trusted(reading, limits), p),
        parameters=p,
    )
    keep = inputs.keep()
    if limits.mode is Mode.OFF or limits.cap is Mode.OFF:
        return replace(keep, reason="elasticity is Off")
    missing = missing_data(reading, p) or unusable_input(running, limits, history, now_s=now_s)
    if missing:
        return replace(_blocked(keep, missing), bottleneck=Bottleneck.UNKNOWN)
    other_problem = inputs.other_problem()
    if other_problem:
        return replace(keep, action=Action.FLAG, reason=other_problem)
    if running.scaling is None:
        return _unmanaged(keep, inputs.diagnosis)
    blocked = may_resize(reading, running, limits, history, now_s=now_s, parameters=p)
    if blocked:
        return _blocked(keep, blocked)
    return _choose(keep, inputs)


def _trusted(reading: Reading, limits: Limits) -> Reading:
    """The reading without GPU metrics if those cover less than the least window."""
    window_s = reading.window_s if reading.gpu_window_s is None else reading.gpu_window_s
    if (window_s or 0.0) >= limits.least_window_s * (1.0 - 1e-9):
        return reading
    return replace(reading, **dict.fromkeys(GPU_METRICS))  # type: ignore[arg-type]


@immutable
class _Inputs:
    """The inputs of one decision. `reading` is cleaned."""

    reading: Reading
    running: Running
    limits: Limits
    history: History
    diagnosis: Diagnosis
    parameters: Parameters

    def keep(self) -> Decision:
        """The decision to change nothing, without a reason yet."""
        return Decision(
            action=Action.KEEP,
            gpus=self.running.gpus,
            layout=self.running.layout,
            reason="",
            evidence=self.evidence(),
            bottleneck=self.diagnosis.bottleneck,
        )

    def other_problem(self) -> str:
        """A problem that no GPU count fixes; empty if there is none."""
        trained_s, bottleneck = self.running.trained_s, self.diagnosis.bottleneck
        warm = trained_s is None or trained_s >= self.limits.warm_up_s
        if bottleneck is Bottleneck.IDLE and warm and not self.reading.phase.may_idle:
            return f"idle: {self.diagnosis.because}"
        if bottleneck is Bottleneck.INPUT and warm:
            return f"input-bound: {self.diagnosis.because}; speed up data loading, a resize would not help"
        return ""

    def withheld(self, action: Action) -> str:
        """Why a recommendation is not carried out; empty if it is."""
        limits = self.limits
        if limits.mode is not Mode.AUTO:
            return f"mode is {limits.mode}"
        if limits.cap is not Mode.AUTO:
            return f"the site limits the mode to {limits.cap}"
        if action is not Action.SHRINK or limits.pressure is Pressure.ALWAYS:
            return ""
        waiting = others_waiting_now(limits, self.reading)
        if waiting is None:
            return "unknown whether other jobs wait for GPUs"
        return "" if waiting else "no other job waits for GPUs"

    def evidence(self) -> tuple[str, ...]:
        """The measurements, their window and number of samples, then the queries."""
        r = self.reading
        window = "window unknown" if r.window_s is None else f"window {format_duration(r.window_s)}"
        samples = "" if r.samples is None else f", {r.samples} samples"
        coverage = ", coverage unknown" if r.coverage is None else f", {r.coverage:.0%} of the expected ones"
        lines = [window + samples + coverage]
        if r.gpu_window_s not in {None, r.window_s}:
            lines.append(f"GPU metrics over {format_duration(r.gpu_window_s or 0.0)}")
        if r.tokens_per_s is not None:
            steps = "" if r.window_steps is None else f" over {r.window_steps} steps"
            lines.append(f"{format_count(r.tokens_per_s)} tokens/s on {r.gpus or '?'} GPUs{steps}")
        return (*lines, self.diagnosis.because, *r.queries)


def _blocked(keep: Decision, why: Missing | str) -> Decision:
    """The job keeps its size for this reason."""
    return replace(keep, reason=str(why), missing=why if isinstance(why, Missing) else None)


def _unmanaged(keep: Decision, diagnosis: Diagnosis) -> Decision:
    """A job without a plan is at most flagged."""
    if diagnosis.bottleneck in {Bottleneck.HEALTHY, Bottleneck.UNKNOWN}:
        return replace(keep, reason=f"not managed by rightsizer; {diagnosis.because}")
    return replace(
        keep,
        action=Action.FLAG,
        reason=f"{diagnosis.bottleneck}: {diagnosis.because}; not managed by rightsizer",
    )


def _choose(keep: Decision, inputs: _Inputs) -> Decision:
    """Decide about a job that may be resized: late, early or well sized."""
    p, limits, because = inputs.parameters, inputs.limits, inputs.diagnosis.because
    sizes = candidate_sizes(inputs.reading, inputs.running, limits, inputs.history, p)
    keep = replace(keep, confidence=sizes.confidence(sizes.present))
    if inputs.running.deadline_left_s is None:
        return _spare(keep, inputs, sizes)
    if inputs.running.deadline_left_s <= 0:
        return replace(keep, action=Action.FLAG, reason="the deadline has passed; " + _remaining_text(sizes))
    choice = choose_size(sizes, p)
    if choice.size is None:
        action = Action.FLAG if choice.never_in_time or choice.oversized else Action.KEEP
        return replace(keep, action=action, reason=f"{choice.why}; {because}")
    late = choice.action is Action.GROW
    long_enough = may_grow if late else may_shrink
    blocked = long_enough(inputs.reading, limits, inputs.history, p)
    if blocked:
        return replace(keep, reason=f"{choice.why}; {blocked}")
    return _resize(keep, choice, choice.size, sizes, inputs.withheld(choice.action))


def _spare(keep: Decision, inputs: _Inputs, sizes: CandidateSizes) -> Decision:
    """Decide about a job without a deadline: idle GPUs are taken, and given back at once to who waits."""
    p, limits, because = inputs.parameters, inputs.limits, inputs.diagnosis.because
    if not limits.takes_spare:
        return replace(keep, reason=f"no deadline to size for; {because}")
    first = inputs.history.first_gpus or inputs.running.gpus
    waiting = others_waiting_now(limits, inputs.reading)
    choice = choose_spare(sizes, first_gpus=first, others_waiting=waiting, p=p)
    if choice.size is None:
        return replace(keep, reason=f"{choice.why}; {because}")
    grows = choice.action is Action.GROW
    blocked = may_grow(inputs.reading, limits, inputs.history, p) if grows else ""
    if blocked:
        return replace(keep, reason=f"{choice.why}; {blocked}")
    return _resize(keep, choice, choice.size, sizes, inputs.withheld(choice.action))


def _resize(
    keep: Decision, choice: SizeChoice, size: JobSize, sizes: CandidateSizes, withheld: str
) -> Decision:
    """The decision to take `size`, carried out or withheld."""
    return replace(
        keep,
        action=choice.action,
        gpus=size.gpus,
        layout=size.layout,
        option=size.option,
        in_place=size.in_place,
        act=not withheld,
        withheld=withheld,
        reason=choice.why,
        price_gpu_hours=sizes.price_gpu_hours(size),
        saves_gpu_hours=sizes.saves_gpu_hours(size),
        confidence=sizes.confidence(size),
    )


def others_waiting_now(limits: Limits, reading: Reading) -> bool | None:
    """Whether other jobs wait for GPUs: the executor's answer, else the reading's."""
    return reading.others_waiting if limits.others_waiting is None else limits.others_waiting


def _remaining_text(sizes: CandidateSizes) -> str:
    rate, left_s = sizes.present.tokens_per_s, sizes.seconds(sizes.present)
    return f"at the measured {format_count(rate)} tokens/s, {format_duration(left_s)} remain"
