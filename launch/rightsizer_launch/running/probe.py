"""A probe: a plan's own script on few GPUs for a few minutes, as a TrainingPlan of its own. Pure.

Each GPU does what it would do in the plan: same tensor, pipeline and context parallelism, micro-batch and
recompute. Only the data-parallel ranks and the micro-batches of a step are fewer. So each executor runs a
probe as it runs any plan, and the calibration knows it as a run of the same configuration.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from rightsizer_api import load
from rightsizer_api.manifest import dump
from rightsizer_api.plan import LONGEST_NAME, TrainingPlan
from rightsizer_api.spec.resources import Elasticity, ElasticityMode, LayoutPins
from rightsizer_api.spec.workload import RecomputeMode
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.observation import observe
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.evidence import Calibration, noise_ln
from rightsizer_engine.estimate.parameters import load_calibration
from rightsizer_engine.search.calibrate import calibration
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Option, Plan, Request
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable
from rightsizer_launch.running.run_totals import warm_steps
from rightsizer_launch.worker.progress import Record

_STEPS = 40
"""Steps that a probe should have time for; fewer micro-batches make steps shorter. A choice."""
_TELLS = 1.05
"""The fewest GPUs that narrow the interval as far as the best choice, within this factor. A choice."""
_ENOUGH = 1.2
"""Measure until the noise is at most this multiple of what differs between two equal runs. A choice."""
_LEAST_STEPS = 10
ENOUGH_STEPS = 60
"""Steps after which a probe ends where their scatter is not known. A choice."""
_PINNED = ("tp", "pp", "vpp", "cp", "ep", "micro_batch")
_FOLDER = "rightsizer-probe"


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


@immutable
class Question:
    """The input of a probe: a plan that would run as `target`, and `clusters` where the probe may run.

    `home` is the folder of the plan's file, where workers start unless the plan says so; None: the executor
    knows no such folder. `tag` makes the probe's name unique.
    """

    plan: TrainingPlan
    target: Option
    request: Request
    clusters: tuple[Cluster, ...]
    limit_s: float
    home: Path | None = None
    tag: str = ""

    @property
    def room(self) -> int:
        """The most GPUs of the plan's type that the probe may take."""
        same = (c.max_gpus for c in self.clusters if c.gpu.name == self.target.cluster.gpu.name)
        return max(same, default=0)


def probe_of(asked: Question, *, gpus: int | None = None) -> Probe:
    """The fewest GPUs, or `gpus`, whose measurement narrows the plan's interval about as far as any."""
    target, unit = asked.target, _unit(asked.target.layout)
    if gpus is not None and gpus % unit:
        remedy = f"must be a multiple of {unit}, the GPUs of one replica of the model"
        raise InputError("--gpus", value=gpus, remedy=remedy)
    best: Probe | None = None
    for count in _counts(asked) if gpus is None else (gpus,):
        found = _candidate(asked, count)
        if found is not None and (best is None or found.expected_ratio * _TELLS < best.expected_ratio):
            best = found
        if best is not None and count >= 2 * target.cluster.gpus_per_node:
            break
    if best is None:
        raise _none_fits(asked, gpus)
    if gpus is None and best.option.gpus > max(2 * target.cluster.gpus_per_node, target.gpus // 2):
        few = f"the fewest GPUs that tell are {best.option.gpus} of the plan's {target.gpus}"
        raise InputError("--gpus", value="", remedy=f"{few}; name their number to use them")
    return best


def _candidate(asked: Question, count: int) -> Probe | None:
    """The probe on `count` GPUs: with the plan's recompute, else with any; None if it does not fit."""
    if count > asked.room:
        return None
    for recompute in dict.fromkeys((asked.target.layout.recompute, Recompute.AUTO)):
        plan = _derived(asked, recompute, gpus=count)
        option = _option(asked, plan, recompute, gpus=count)
        if option is not None:
            return Probe(
                plan=plan,
                option=option,
                limit_s=asked.limit_s,
                ratio=interval_ratio(asked.target),
                expected_ratio=_expected_ratio(asked, option),
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


def has_enough(steps: Iterable[Record], attempt: int) -> bool:
    """Whether more steps would hardly tell more: what differs between equal runs outweighs the noise."""
    times = [record.step_s for record in warm_steps(steps, attempt) if record.step_s > 0]
    if len(times) < _LEAST_STEPS:
        return False
    noise = noise_ln(len(times), float(np.log(times).std(ddof=1)))
    return noise <= _ENOUGH * load_calibration().step_between_runs


def _counts(asked: Question) -> Iterator[int]:
    """Two replicas of the model, one node, two nodes, then more nodes up to the plan's own size.

    One replica exchanges no gradients: it is probed only where there is no room for two.
    """
    target, node, unit = asked.target, asked.target.cluster.gpus_per_node, _unit(asked.target.layout)
    room, nodes, whole = min(target.gpus, asked.room), 2, math.lcm(unit, node)
    least = max(1, min(2, room // unit)) * unit
    sizes = {least, node // unit * unit, target.gpus}
    while nodes * node < 2 * room:
        sizes.add(-(-nodes * node // whole) * whole)
        nodes *= 2
    yield from sorted(count for count in sizes if least <= count <= room and not count % unit)


def _unit(layout: Layout) -> int:
    """The GPUs of one replica of the model, with all its experts."""
    experts = -(-layout.ep // (layout.cp * layout.tp))
    return layout.tp * layout.pp * layout.cp * experts


def _derived(asked: Question, recompute: Recompute, *, gpus: int) -> TrainingPlan:
    """The plan of the probe: exact GPUs and shape, a time limit, no deadline, no restart."""
    plan, spec, layout = asked.plan, asked.plan.spec, asked.target.layout
    replicas = gpus // (layout.tp * layout.pp * layout.cp)
    batch = replicas * layout.micro_batch * _micro_batches(asked)
    launch, checkpoint = spec.launch, spec.launch.checkpoint
    if checkpoint is not None:
        path = f"{checkpoint.path.rstrip('/')}/{_FOLDER}{asked.tag}"
        checkpoint = checkpoint.model_copy(update={"path": path, "interval": "auto"})
    changed = {
        "deadline": None,
        "budget": None,
        "active_deadline": f"{math.ceil(asked.limit_s)}s",
        "ttl_after_finished": "1h",
        "elasticity": Elasticity(mode=ElasticityMode.OFF),
        "layout": LayoutPins(**{name: getattr(layout, name) for name in _PINNED}),
        "resources": spec.resources.model_copy(
            update={"gpus": gpus, "min_gpus": 1, "max_gpus": None, "spare_nodes": 0}
        ),
        "workload": spec.workload.model_copy(
            update={
                "global_batch_tokens": None,
                "global_batch_sequences": batch,
                "recompute": RecomputeMode(recompute.name.lower()),
            }
        ),
        "launch": launch.model_copy(
            update={
                "checkpoint": checkpoint,
                "restarts": launch.restarts.model_copy(update={"limit": 0}),
                "working_dir": str(asked.home / (launch.working_dir or ""))
                if asked.home
                else launch.working_dir,
            }
        ),
    }
    metadata = plan.metadata.model_copy(
        update={"name": _name(asked), "uid": None, "generation": None, "annotations": None}
    )
    draft = plan.model_copy(
        update={"metadata": metadata, "spec": spec.model_copy(update=changed), "status": None}
    )
    return load(dump(draft))


def _name(asked: Question) -> str:
    ending = f"-probe{asked.tag}"
    return asked.plan.metadata.name[: LONGEST_NAME - len(ending)].rstrip("-") + ending


def _micro_batches(asked: Question) -> int:
    """The micro-batches of a step: as in the plan, or fewer if time is too short for enough steps.

    A pipeline keeps at least one for each stage, and a multiple of them.
    """
    layout = asked.target.layout
    one_s = asked.target.step_s / layout.micro_batches
    affordable = int(asked.limit_s / 2.0 / _STEPS / one_s) // layout.pp * layout.pp
    return min(layout.micro_batches, max(layout.pp, affordable))


def _option(asked: Question, derived: TrainingPlan, recompute: Recompute, *, gpus: int) -> Option | None:
    """The engine's option for the derived plan; None if it does not fit."""
    request, kind = asked.request, asked.target.cluster.gpu.name
    roomy = [c for c in asked.clusters if c.gpu.name == kind and c.max_gpus >= gpus]
    batch = derived.spec.workload.global_batch_sequences or 1
    answer = size(
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
            pinned={name: getattr(asked.target.layout, name) for name in _PINNED},
        ),
        compared=False,
    )
    return answer.option if isinstance(answer, Plan) else None


def _expected_ratio(asked: Question, option: Option) -> float:
    """The interval's ratio at the plan's size after a run of `option` that measures the prediction."""
    request, target = asked.request, asked.target
    case = Case(
        architecture=request.architecture,
        workload=replace(request.workload, global_batch_sequences=option.global_batch_sequences),
        cluster=option.cluster,
        framework=request.framework,
        layout=option.layout,
    )
    steps = max(2, min(_STEPS, int(asked.limit_s / 2.0 / option.step_s)))
    observed = observe(case, run="probe", step_s=[option.step_s] * steps)
    known = request.calibration.evidence if request.calibration else ()
    learnt = Calibration(evidence=(*known, *calibration((observed,) if observed else ()).evidence))
    answer = size(
        replace(
            request,
            calibration=learnt,
            clusters=(target.cluster,),
            gpu_counts=(target.gpus,),
            deadline_s=None,
            max_usd=None,
            pinned={name: getattr(target.layout, name) for name in _PINNED},
        ),
        compared=False,
    )
    return interval_ratio(answer.option) if isinstance(answer, Plan) else interval_ratio(target)


def _none_fits(asked: Question, gpus: int | None) -> InputError:
    room, unit, kind = asked.room, _unit(asked.target.layout), asked.target.cluster.gpu.name
    if not room:
        remedy = "is not here; --slurm or `kubectl rightsizer probe` runs the probe where it is"
        return InputError("spec.resources.gpuTypes", value=kind, remedy=remedy)
    if gpus and gpus > room:
        return InputError("--gpus", value=gpus, remedy=f"there are {room} {kind} here")
    remedy = f"are too few {kind}: a replica of the model in the plan's layout takes {unit}, or more memory"
    return InputError("--gpus", value=gpus or room, remedy=remedy)
