"""A probe: a plan's own script on few GPUs for a few minutes, as a TrainingPlan of its own. Pure.

Each GPU does what it would do in the plan: same tensor, pipeline and context parallelism, micro-batch and
recompute. Only the data-parallel ranks and the micro-batches of a step are fewer. So each executor runs a
probe as it runs any plan, and the calibration knows it as a run of the same configuration.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.observation import observe
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.evidence import Calibration
from rightsizer_engine.search.calibrate import calibration
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Option, Plan
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable
from rightsizer_launch.running.probe_plan import PINNED, STEPS, ProbeRequest, probe_plan

_TELLS = 1.05
"""The fewest GPUs that narrow the interval as far as the best choice, within this factor. A choice."""


class Interrupted(Exception):  # noqa: N818 -- a request of the user, not an error
    """The user stopped the probe: nothing is recorded."""


@immutable
class Probe:
    """A run on few GPUs: its plan, the layout that the engine expects, and what it would tell.

    `ratio` is upper over lower end of the planned run's 80 % interval, `expected_ratio` the same after the
    probe if it measures what is predicted.
    """

    plan: TrainingPlan
    option: Option
    limit_s: float
    ratio: float
    expected_ratio: float


def probe_of(wanted: ProbeRequest, *, gpus: int | None = None) -> Probe:
    """The fewest GPUs, or `gpus`, whose measurement narrows the plan's interval about as far as any."""
    target, unit = wanted.target, _replica_gpus(wanted.target.layout)
    if gpus is not None and gpus % unit:
        remedy = f"must be a multiple of {unit}, the GPUs of one replica of the model"
        raise InputError("--gpus", value=gpus, remedy=remedy)
    best: Probe | None = None
    for count in _counts(wanted) if gpus is None else (gpus,):
        found = _candidate(wanted, count)
        if found is not None and (best is None or found.expected_ratio * _TELLS < best.expected_ratio):
            best = found
        if best is not None and count >= 2 * target.cluster.gpus_per_node:
            break
    if best is None:
        raise _none_fits(wanted, gpus)
    if gpus is None and best.option.gpus > max(2 * target.cluster.gpus_per_node, target.gpus // 2):
        few = f"the fewest GPUs that tell are {best.option.gpus} of the plan's {target.gpus}"
        raise InputError("--gpus", value="", remedy=f"{few}; name their number to use them")
    return best


def _candidate(wanted: ProbeRequest, count: int) -> Probe | None:
    """The probe on `count` GPUs: with the plan's recompute, else with any; None if it does not fit."""
    if count > wanted.room:
        return None
    for recompute in dict.fromkeys((wanted.target.layout.recompute, Recompute.AUTO)):
        plan = probe_plan(wanted, recompute, gpus=count)
        option = _option(wanted, plan, recompute, gpus=count)
        if option is not None:
            return Probe(
                plan=plan,
                option=option,
                limit_s=wanted.limit_s,
                ratio=interval_ratio(wanted.target),
                expected_ratio=_expected_ratio(wanted, option),
            )
    return None


def no_steps(probe: Probe, *, failed: bool = False) -> InputError:
    """The error of a probe that measured too few steps."""
    command = " ".join(probe.plan.spec.launch.command)
    if failed:
        remedy = "failed before it had trained a few steps; its last output says why"
    else:
        remedy = (
            f"reported too few steps within {format_duration(probe.limit_s)}: it must call agent.start and"
            " agent.step (rightsizer_launch.agent); --time gives it longer"
        )
    return InputError("spec.launch.command", value=command, remedy=remedy)


def interval_ratio(option: Option) -> float:
    """The upper over the lower end of the 80 % interval of the finish."""
    return option.finish_hi_s / option.finish_lo_s


def _counts(wanted: ProbeRequest) -> Iterator[int]:
    """Two replicas of the model, one node, two nodes, then more nodes up to the plan's own size.

    One replica exchanges no gradients: it is probed only where there is no room for two.
    """
    target, node, unit = (
        wanted.target,
        wanted.target.cluster.gpus_per_node,
        _replica_gpus(wanted.target.layout),
    )
    room, nodes, whole = min(target.gpus, wanted.room), 2, math.lcm(unit, node)
    least = max(1, min(2, room // unit)) * unit
    sizes = {least, node // unit * unit, target.gpus}
    while nodes * node < 2 * room:
        sizes.add(-(-nodes * node // whole) * whole)
        nodes *= 2
    yield from sorted(count for count in sizes if least <= count <= room and not count % unit)


def _replica_gpus(layout: Layout) -> int:
    """The GPUs of one replica of the model, with all its experts."""
    experts = -(-layout.ep // (layout.cp * layout.tp))
    return layout.tp * layout.pp * layout.cp * experts


def _option(wanted: ProbeRequest, derived: TrainingPlan, recompute: Recompute, *, gpus: int) -> Option | None:
    """The engine's option for the derived plan; None if it does not fit."""
    request, kind = wanted.request, wanted.target.cluster.gpu.name
    roomy = [c for c in wanted.clusters if c.gpu.name == kind and c.max_gpus >= gpus]
    batch = derived.spec.workload.global_batch_sequences or 1
    response = size(
        replace(
            request,
            workload=replace(request.workload, global_batch_sequences=batch, recompute=recompute),
            clusters=(min(roomy, key=lambda c: c.max_gpus),),
            deadline_s=None,
            max_usd=None,
            min_gpus=1,
            max_gpus=None,
            spare_nodes=0,
            gpu_counts=(gpus,),
            pinned={name: getattr(wanted.target.layout, name) for name in PINNED},
        ),
        compared=False,
    )
    return response.option if isinstance(response, Plan) else None


def _expected_ratio(wanted: ProbeRequest, option: Option) -> float:
    """The interval's ratio at the plan's size after a run of `option` that measures the prediction."""
    request, target = wanted.request, wanted.target
    case = Case(
        architecture=request.architecture,
        workload=replace(request.workload, global_batch_sequences=option.global_batch_sequences),
        cluster=option.cluster,
        framework=request.framework,
        layout=option.layout,
    )
    steps = max(2, min(STEPS, int(wanted.limit_s / 2.0 / option.step_s)))
    observed = observe(case, run="probe", step_s=[option.step_s] * steps)
    known = request.calibration.evidence if request.calibration else ()
    learnt = Calibration(evidence=(*known, *calibration((observed,) if observed else ()).evidence))
    response = size(
        replace(
            request,
            calibration=learnt,
            clusters=(target.cluster,),
            gpu_counts=(target.gpus,),
            deadline_s=None,
            max_usd=None,
            pinned={name: getattr(target.layout, name) for name in PINNED},
        ),
        compared=False,
    )
    return interval_ratio(response.option) if isinstance(response, Plan) else interval_ratio(target)


def _none_fits(wanted: ProbeRequest, gpus: int | None) -> InputError:
    room, unit, kind = wanted.room, _replica_gpus(wanted.target.layout), wanted.target.cluster.gpu.name
    if not room:
        remedy = "is not here; --slurm or `kubectl rightsizer probe` runs the probe where it is"
        return InputError("spec.resources.gpuTypes", value=kind, remedy=remedy)
    if gpus and gpus > room:
        return InputError("--gpus", value=gpus, remedy=f"there are {room} {kind} here")
    remedy = f"are too few {kind}: a replica of the model in the plan's layout takes {unit}, or more memory"
    return InputError("--gpus", value=gpus or room, remedy=remedy)
