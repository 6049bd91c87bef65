"""A worker's program, for all executors: argv, environment, files, elastic range. Pure.

The local executor, the operator and Slurm call `worker_spec`. Each adds only what depends on the executor:
torchrun's rendezvous, ports and devices.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from rightsizer_api import expand, sizing
from rightsizer_api.placeholders import placeholders_in
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.spec.resources import ElasticityMode
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.search.types import Option
from rightsizer_engine.units import parse_duration_s
from rightsizer_engine.values import immutable
from rightsizer_launch.argv import frameworks
from rightsizer_launch.argv.torchrun import Program, program
from rightsizer_launch.stacks.catalog import observed, resizes_in_place
from rightsizer_launch.worker import progress
from rightsizer_launch.worker.restart_monitor import ENV_RESTART_WITHIN_S, ENV_START_TIMEOUT_S

_ROCM = {"HIP_FORCE_DEV_KERNARG": "1", "HSA_NO_SCRATCH_RECLAIM": "1", "GPU_MAX_HW_QUEUES": "2"}
"""What AMD's training guides for MI300X set: arguments of kernels on the GPU, scratch memory that is kept,
and two hardware queues, so that RCCL's kernels run beside compute."""

_SIZE_PLACEHOLDERS = {"layout.gpus", "layout.dp", "layout.microBatches", "layout.shardGroup"}
"""Placeholders whose value depends on the number of ranks."""

_SHORTEST_INTERVAL_S = 10.0
"""The shortest automatic checkpoint interval. A choice."""

_GRACE_S = 30.0
"""Seconds from SIGTERM to SIGKILL for a worker that saves no checkpoint. A choice."""


@immutable
class Directories:
    """The folders of an executor's workers.

    `run` holds the run's records, `files` what the framework reads. A relative checkpoint path starts at
    `checkpoints`; if that is empty, it starts at the worker's working directory.
    """

    run: str
    files: str
    checkpoints: str = ""


@immutable
class LaunchSize:
    """The engine's answer: a layout, the sequences of a step, seconds of a step and between saves.

    `rocm`: the GPUs are AMD's.
    """

    layout: Layout
    batch_sequences: int
    step_s: float
    checkpoint_interval_s: float
    rocm: bool = False

    @classmethod
    def of(cls, option: Option) -> "LaunchSize":
        """The size that the engine chose."""
        return cls(
            layout=option.layout,
            batch_sequences=option.global_batch_sequences,
            step_s=option.step_s,
            checkpoint_interval_s=option.checkpoint_interval_s,
            rocm=option.cluster.gpu.runs_rocm,
        )


@immutable
class ElasticRange:
    """GPUs on which the same workers can train; `fewest` equals `most` unless they can resize `in_place`."""

    in_place: bool
    fewest: int
    most: int

    def nodes(self, gpus_of_node: int) -> tuple[int, int]:
        """The range in whole nodes: the fewest rounded up, the most rounded down."""
        return max(1, -(-self.fewest // gpus_of_node)), self.most // gpus_of_node


@immutable
class WorkerSpec:
    """The program of every worker of a plan.

    `environment` contains the user's variables, which win over ours. `files` maps names in
    `Directories.files` to texts. `checkpoint_path` is empty if the plan saves nothing.
    """

    program: Program
    environment: Mapping[str, str]
    files: Mapping[str, str]
    workload: Workload
    checkpoint_path: str
    checkpoint_interval_s: float
    grace_s: float
    elastic: ElasticRange


def worker_spec(
    plan: TrainingPlan,
    size: LaunchSize,
    directories: Directories,
    *,
    room_gpus: int | None = None,
    movable: bool = True,
    supervised: bool = False,
    resolved: sizing.ResolvedPlan | None = None,
) -> WorkerSpec:
    """The program of a plan's workers at one size. `resolved` is the plan, if it is resolved already.

    `room_gpus` and `movable` are `elastic_range`'s. `supervised` means that a supervisor counts failures, so
    the workers do not.
    """
    launch, resolved = plan.spec.launch, resolved or sizing.resolve(plan)
    workload = replace(resolved.workload, global_batch_sequences=size.batch_sequences)
    flags = frameworks.flags(
        "custom" if _is_sized_only(plan) else launch.framework,
        size.layout,
        workload,
        architecture=resolved.architecture,
        directory=directories.files,
    )
    path, interval_s = _checkpoint_path(plan, directories), _interval_s(plan, size)
    environment = {**flags.environment, "PYTHONUNBUFFERED": "1", progress.ENV_RUN_DIRECTORY: directories.run}
    environment |= _ROCM if size.rocm else {}
    if path:
        environment[progress.ENV_CHECKPOINT_PATH] = path
        environment[progress.ENV_CHECKPOINT_INTERVAL_S] = f"{interval_s:g}"
    placeholders = {
        "checkpoint.path": path,
        "checkpoint.intervalSteps": max(1, round(interval_s / size.step_s)),
    }
    return WorkerSpec(
        program=_program(plan, size.layout, workload, placeholders, flags.arguments),
        environment=environment | ({} if supervised else _restart_budget(plan)) | _users_variables(plan),
        files=flags.files,
        workload=workload,
        checkpoint_path=path,
        checkpoint_interval_s=interval_s,
        grace_s=grace_s(plan),
        elastic=elastic_range(plan, size.layout, room_gpus=room_gpus, movable=movable),
    )


def target_of(plan: TrainingPlan) -> Program:
    """The program of a plan's command, before the plan is sized. InputError: it cannot be launched."""
    return program(_command(plan))


def elastic_range(
    plan: TrainingPlan, layout: Layout, *, room_gpus: int | None = None, movable: bool = True
) -> ElasticRange:
    """The GPUs on which workers of this layout can train without a new attempt.

    `room_gpus` is the most that the executor can ever give. `movable` is false where the executor must place
    each size as a whole.
    """
    sizes = in_place_sizes(plan, room_gpus=room_gpus)
    if not (sizes and movable and is_data_parallel(layout)):
        return ElasticRange(in_place=False, fewest=layout.gpus, most=layout.gpus)
    return ElasticRange(in_place=True, fewest=min(layout.gpus, sizes[0]), most=max(layout.gpus, sizes[-1]))


def in_place_sizes(plan: TrainingPlan, *, room_gpus: int | None = None) -> range:
    """The numbers of GPUs that a data-parallel run of a plan may have in place; empty if there is one only.

    `resources.gpus` does not narrow it: a person may change that field of a running plan.
    """
    launch, elasticity, resources = plan.spec.launch, plan.spec.elasticity, plan.spec.resources
    fixed = _SIZE_PLACEHOLDERS & placeholders_in(_command(plan))
    off = plan.spec.resize_mode is ElasticityMode.OFF
    if fixed or off or not resizes_in_place(launch.framework):
        return range(0)
    fewest = elasticity.min_gpus or resources.min_gpus
    most = min(elasticity.max_gpus or resources.max_gpus or room_gpus or 0, room_gpus or math.inf)
    return range(fewest, 1 + max(fewest, int(most)))


def is_data_parallel(layout: Layout) -> bool:
    """Whether every rank holds the whole model, or an equal shard of it over all ranks."""
    return layout.dp == layout.gpus and layout.ep == 1 and not layout.shard_group


def size_variables(plan: TrainingPlan) -> frozenset[str]:
    """Variables that change with the number of ranks; workers that resize in place do not read them."""
    names = {
        "RIGHTSIZER_LAYOUT_DP",
        "RIGHTSIZER_LAYOUT_MICRO_BATCHES",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    }
    checkpoint = plan.spec.launch.checkpoint
    automatic = checkpoint is not None and checkpoint.interval == "auto"
    return frozenset(names | {progress.ENV_CHECKPOINT_INTERVAL_S} if automatic else names)


def gpus_per_node(layout: Layout, most: int) -> int:
    """GPUs of a node: the largest divisor of the job up to `most` that keeps tensor ranks together."""
    divisors = [n for n in range(1, min(most, layout.gpus) + 1) if layout.gpus % n == 0]
    return max([n for n in divisors if n % layout.tp == 0] or divisors)


def grace_s(plan: TrainingPlan | None) -> float:
    """Seconds between SIGTERM and SIGKILL, in which a worker saves; None: the plan is not known."""
    checkpoint = plan.spec.launch.checkpoint if plan else None
    return parse_duration_s(checkpoint.grace) if checkpoint else _GRACE_S


def _command(plan: TrainingPlan) -> tuple[str, ...]:
    return (*plan.spec.launch.command, *plan.spec.launch.args)


def _restart_budget(plan: TrainingPlan) -> dict[str, str]:
    """Variables by which workers count their own failures."""
    launch = plan.spec.launch
    start = launch.start_timeout
    return {
        progress.ENV_RESTART_LIMIT: str(launch.restarts.limit),
        ENV_RESTART_WITHIN_S: f"{parse_duration_s(launch.restarts.within):g}",
        **({ENV_START_TIMEOUT_S: f"{parse_duration_s(start):g}"} if start is not None else {}),
    }


def _users_variables(plan: TrainingPlan) -> dict[str, str]:
    """The user's variables; the operator adds those with a `valueFrom`."""
    variables = plan.spec.launch.env
    return {variable.name: variable.value or "" for variable in variables if variable.value_from is None}


def _program(
    plan: TrainingPlan,
    layout: Layout,
    workload: Workload,
    placeholders: Mapping[str, object],
    flags: tuple[str, ...],
) -> Program:
    """The expanded command, then the framework's flags; a command with layout placeholders gets none."""
    command = _command(plan)
    values = {
        **placeholders,
        "plan.name": plan.metadata.name,
        "workload.sequenceLength": workload.sequence_tokens,
        "workload.globalBatchSequences": workload.global_batch_sequences,
        "workload.steps": int(workload.steps),
    }
    own = program((*expand(command, layout, values), *(() if _states_layout(plan) else flags)))
    return observed(plan.spec.launch.framework, own)


def _states_layout(plan: TrainingPlan) -> bool:
    return any(name.startswith("layout.") for name in placeholders_in(_command(plan)))


def _is_sized_only(plan: TrainingPlan) -> bool:
    """Whether the command itself gives its layout to a framework whose flags are not known."""
    return _states_layout(plan) and not frameworks.is_launched(plan.spec.launch.framework)


def _checkpoint_path(plan: TrainingPlan, directories: Directories) -> str:
    checkpoint = plan.spec.launch.checkpoint
    if checkpoint is None:
        return ""
    relative = directories.checkpoints and not checkpoint.path.startswith("/")
    return f"{directories.checkpoints}/{checkpoint.path}" if relative else checkpoint.path


def _interval_s(plan: TrainingPlan, size: LaunchSize) -> float:
    """Seconds between checkpoints: as the plan states, else the engine's in whole seconds."""
    checkpoint = plan.spec.launch.checkpoint
    if checkpoint is None or checkpoint.interval == "auto":
        return max(_SHORTEST_INTERVAL_S, float(round(size.checkpoint_interval_s)))
    return parse_duration_s(checkpoint.interval)
