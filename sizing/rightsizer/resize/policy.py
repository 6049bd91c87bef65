"""The resize policy: from what was measured to keep, grow, shrink, relayout or flag. Pure.

Utilisation never shrinks a job: a smaller size is taken only if, at the measured rate, the deadline still
holds there with margin and the GPU-hours saved exceed the price of the restart. Missing data decides nothing.
Quick to grow, slow to shrink. The thresholds are data (data/resize.json), each with its source.
"""

from dataclasses import replace

from rightsizer.domain.reading import Reading, cleaned
from rightsizer.estimate.parameters import Parameters, load_resize
from rightsizer.resize.candidates import Choice, Need, chosen, need
from rightsizer.resize.diagnosis import Diagnosis, diagnose
from rightsizer.resize.preconditions import may_grow, may_resize, may_shrink, not_seen
from rightsizer.resize.types import (
    Action,
    Bottleneck,
    Decision,
    History,
    Limits,
    Mode,
    Pressure,
    Running,
    Scaling,
    Size,
)
from rightsizer.units import format_count, format_duration
from rightsizer.values import immutable

__all__ = [
    "Action",
    "Bottleneck",
    "Decision",
    "History",
    "Limits",
    "Mode",
    "Pressure",
    "Running",
    "Scaling",
    "Size",
    "decide",
    "window_s",
]


def window_s(limits: Limits, parameters: Parameters | None = None) -> float:
    """The window to read before deciding about a job: two checkpoint intervals, at least the shortest."""
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
    """What to do about one job. `now_s` is now, on the clock of the history's moments."""
    p = parameters or load_resize()
    some = cleaned(reading)
    case = _Case(
        reading=some, running=running, limits=limits, history=history, found=diagnose(some, p), parameters=p
    )
    keep = Decision(
        action=Action.KEEP,
        gpus=running.gpus,
        layout=running.layout,
        reason="",
        evidence=case.evidence(),
        bottleneck=case.found.bottleneck,
    )
    if limits.mode is Mode.OFF or limits.cap is Mode.OFF:
        return replace(keep, reason="elasticity is Off")
    unseen = not_seen(some, p)
    if unseen:
        return replace(keep, reason=unseen, bottleneck=Bottleneck.UNKNOWN)
    stuck = case.stuck()
    if stuck:
        return replace(keep, action=Action.FLAG, reason=stuck)
    if running.scaling is None:
        return _foreign(keep, case.found)
    closed = may_resize(some, running, limits, history, now_s=now_s, parameters=p)
    if closed:
        return replace(keep, reason=closed)
    return _sized(keep, case)


@immutable
class _Case:
    """All that one decision is made from; `reading` is cleaned."""

    reading: Reading
    running: Running
    limits: Limits
    history: History
    found: Diagnosis
    parameters: Parameters

    def stuck(self) -> str:
        """What other GPU counts do not mend, in words; empty if nothing."""
        trained_s, bottleneck = self.running.trained_s, self.found.bottleneck
        warm = trained_s is None or trained_s >= self.limits.warm_up_s
        if bottleneck is Bottleneck.IDLE and warm and not self.reading.phase.may_idle:
            return f"idle: {self.found.because}"
        if bottleneck is Bottleneck.INPUT and warm:
            return f"input-bound: {self.found.because}; feed it faster, other GPU counts change nothing"
        return ""

    def withheld(self, action: Action) -> str:
        """Why a recommendation is not carried out, in words; empty if it is."""
        limits = self.limits
        if limits.mode is not Mode.AUTO:
            return f"mode is {limits.mode}: it is only recommended"
        if limits.cap is not Mode.AUTO:
            return f"the site allows no more than {limits.cap}"
        if action is not Action.SHRINK or limits.pressure is Pressure.ALWAYS:
            return ""
        waiting = waits(limits, self.reading)
        if waiting is None:
            return "whether anyone waits for GPUs is unknown"
        return "" if waiting else "nobody waits for GPUs"

    def evidence(self) -> tuple[str, ...]:
        """What was measured, over which window, from how many samples; then the queries."""
        r = self.reading
        window = "window unknown" if r.window_s is None else f"window {format_duration(r.window_s)}"
        samples = "" if r.samples is None else f", {r.samples} samples"
        coverage = ", coverage unknown" if r.coverage is None else f", {r.coverage:.0%} of those expected"
        lines = [window + samples + coverage]
        if r.tokens_per_s is not None:
            steps = "" if r.window_steps is None else f" over {r.window_steps} steps"
            lines.append(f"{format_count(r.tokens_per_s)} tokens/s on {r.gpus or '?'} GPUs{steps}")
        return (*lines, self.found.because, *r.queries)


def _foreign(keep: Decision, found: Diagnosis) -> Decision:
    """A job without a plan: its use is told, nothing is done."""
    if found.bottleneck in {Bottleneck.HEALTHY, Bottleneck.UNKNOWN}:
        return replace(keep, reason=f"no plan of ours; {found.because}")
    return replace(keep, action=Action.FLAG, reason=f"{found.bottleneck}: {found.because}; no plan of ours")


def _sized(keep: Decision, case: _Case) -> Decision:
    """A job that may be resized: is it late, is it early, or well sized."""
    p, limits, because = case.parameters, case.limits, case.found.because
    needs = need(case.reading, case.running, limits, case.history, p)
    keep = replace(keep, confidence=needs.confidence(needs.present))
    if case.running.deadline_left_s is None:
        return replace(keep, reason=f"has no deadline to size for; {because}")
    if case.running.deadline_left_s <= 0:
        return replace(keep, action=Action.FLAG, reason="its deadline is past; " + _pace(needs))
    choice = chosen(needs, p)
    if choice.size is None:
        action = Action.FLAG if choice.hopeless or choice.too_big else Action.KEEP
        return replace(keep, action=action, reason=f"{choice.why}; {because}")
    late = choice.action is Action.GROW
    closed = may_grow(case.reading, limits, p) if late else may_shrink(case.reading, limits, p)
    if closed:
        return replace(keep, reason=f"{choice.why}; {closed}")
    return _made(keep, choice, choice.size, needs, case.withheld(choice.action))


def _made(keep: Decision, choice: Choice, size: Size, needs: Need, withheld: str) -> Decision:
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
        price_gpu_hours=needs.price_gpu_hours(size),
        saves_gpu_hours=needs.saves_gpu_hours(size),
        confidence=needs.confidence(size),
    )


def waits(limits: Limits, some: Reading) -> bool | None:
    """Whether someone waits for GPUs, as the executor says, else as was read."""
    return some.others_waiting if limits.others_waiting is None else limits.others_waiting


def _pace(needs: Need) -> str:
    rate, left_s = needs.present.tokens_per_s, needs.seconds(needs.present)
    return f"at the measured {format_count(rate)} tokens/s it takes {format_duration(left_s)} more"
