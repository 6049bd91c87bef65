"""Probe a plan on any executor: choose what to run, run it, record it, and say how the plan changed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rightsizer_api import dump
from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.observation import Observation
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.evidence import same_configuration
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.reasons import gpus_text, layout_text, opening_text
from rightsizer_engine.search.types import NoPlan, Option, Plan, Request
from rightsizer_engine.units import format_bytes, format_duration
from rightsizer_engine.values import immutable
from rightsizer_launch.running import calibration
from rightsizer_launch.running.probe import Interrupted, Probe, interval_ratio, probe_of
from rightsizer_launch.running.probe_plan import ProbeRequest
from rightsizer_launch.worker_spec import target_of

_SHORTEST_S = 10.0
_OTHER_LAYOUT = "; its layout is not the probed one, so probe again to measure it"


class Executor(Protocol):
    """The place of a probe."""

    @property
    def clusters(self) -> Sequence[Cluster]:
        """The clusters that it may use."""

    def answer(self, plan: TrainingPlan) -> Plan | NoPlan:
        """The plan as it would be sized now, calibrated."""

    def measure(self, probe: Probe) -> tuple[Observation, ...]:
        """Run the probe to its end; leave nothing running. Interrupted: the user stopped it."""


@immutable
class ProbeOptions:
    """Options of a probe on any executor. `home`: where workers start unless the plan says so."""

    limit_s: float
    gpus: int | None = None
    dry_run: bool = False
    home: Path | None = None
    tag: str = ""


def run_probe(
    plan: TrainingPlan, options: ProbeOptions, *, executor: Callable[[], Executor], say: Callable[[str], None]
) -> bool:
    """Probe a plan; false if the user stopped it.

    Raises InputError for a plan without a command, without a calibration file, and if nothing is measured.
    """
    target_of(plan)
    if options.limit_s < _SHORTEST_S:
        raise InputError("--time", value=options.limit_s, remedy="must be at least 10s")
    path = _calibration_file()
    where = executor()
    before = where.answer(plan)
    target = _option(before)
    wanted = ProbeRequest(
        plan=plan,
        target=target,
        request=before.request,
        clusters=tuple(where.clusters),
        limit_s=options.limit_s,
        home=options.home,
        tag=options.tag,
    )
    probe = probe_of(wanted, gpus=options.gpus)
    if options.dry_run:
        say(dump(probe.plan).rstrip())
        return True
    say(f"without a probe: {verdict(before)}")
    say(_announcement(probe, target))
    try:
        measured = where.measure(probe)
    except Interrupted:
        return False
    calibration.add([_of_the_plan(one, before.request) for one in measured], path)
    for line in _comparison(probe, measured[-1], before, where.answer(plan)):
        say(line)
    return True


def _calibration_file() -> Path:
    """The file where the probe is recorded. InputError if the user has switched it off."""
    path = calibration.default_path()
    if path is None:
        remedy = (
            f"is empty, so a probe has nowhere to record; unset it, or name a file (${calibration.ENV_FILE})"
        )
        raise InputError(calibration.ENV_FILE, value="", remedy=remedy)
    return path


def _of_the_plan(measured: Observation, request: Request) -> Observation:
    """The measurement as one of the plan's model: a model given by dimensions is named after its plan."""
    return replace(measured, case=replace(measured.case, architecture=request.architecture))


def _option(answer: Plan | NoPlan) -> Option:
    """The option that fits the plan, else the nearest."""
    if isinstance(answer, Plan):
        return answer.option
    if not answer.nearest:
        raise InputError("plan", value=answer.binding, remedy=f"has no size to probe for: {answer.reason}")
    return answer.nearest[0]


def _announcement(probe: Probe, target: Option) -> str:
    option = probe.option
    room = f"{option.gpus} of {target.gpus} {target.cluster.gpu.name}"
    shape = f"{layout_text(option.layout)}, batch {option.global_batch_sequences}"
    limit, now, then = format_duration(probe.limit_s), probe.ratio, probe.expected_ratio
    return (
        f"probe: {room}, {shape}, at most {limit}; the 80 % interval spans a factor {now:.2f},"
        f" after the probe about {then:.2f}"
    )


def _comparison(
    probe: Probe, measured: Observation, before: Plan | NoPlan, after: Plan | NoPlan
) -> tuple[str, ...]:
    """Predicted beside measured, then the plan before and after."""
    option = probe.option
    lines = [
        f"step: {measured.step_s:.4g} s over {measured.steps} steps, {option.step_s:.4g} s predicted"
        f" ({measured.step_s / option.step_s:.2f} x)"
    ]
    if measured.allocated_bytes > 0:
        lines.append(
            f"memory: {format_bytes(measured.allocated_bytes)} at its peak,"
            f" {format_bytes(option.allocated_bytes)} predicted"
        )
    if measured.start_s > 0:
        lines.append(f"start-up: {format_duration(measured.start_s)} to the end of the first step")
    if measured.checkpoint_s > 0:
        lines.append(f"checkpoint: {format_duration(measured.checkpoint_s)} to write")
    lines += [_change(probe, before, after), verdict(after)]
    if isinstance(after, Plan) and after.staging:
        lines.append(opening_text(after.option, after.staging))
    return tuple(lines)


def _change(probe: Probe, before: Plan | NoPlan, after: Plan | NoPlan) -> str:
    """The narrowing of the plan's interval, and its new size."""
    if isinstance(after, NoPlan) or isinstance(before, NoPlan):
        same = isinstance(after, NoPlan) == isinstance(before, NoPlan)
        return "plan: as before" if same else "plan: the probe changed the answer"
    old, new = before.option, after.option
    text = (
        f"plan: 80 %: {_interval(old)} -> {_interval(new)} (a factor {interval_ratio(old):.2f} ->"
        f" {interval_ratio(new):.2f})"
    )
    same = (old.gpus, old.cluster.gpu.name) == (new.gpus, new.cluster.gpu.name)
    size = f"opens with {gpus_text(new)}" + (" as before" if same else f" instead of {gpus_text(old)}")
    if before.staging and after.staging:
        size += f", reserve {before.staging.reserve_gpus} -> {after.staging.reserve_gpus}"
    other = "" if same_configuration(new.layout, probe.option.layout) else _OTHER_LAYOUT
    return f"{text}; {size}{other}"


def _interval(option: Option) -> str:
    return f"{format_duration(option.finish_lo_s)} to {format_duration(option.finish_hi_s)}"
