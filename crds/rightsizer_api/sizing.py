"""Resolves a TrainingPlan: its names looked up, its defaults filled in; and the engine's Request of it."""

import contextlib
import datetime as dt
import re
from collections.abc import Iterator, Mapping

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import moment_text
from rightsizer_api.spec.defaults import architecture_of, recipe_notes, workload_of
from rightsizer_api.spec.resources import ElasticityMode
from rightsizer_api.stated_hardware import stated_hardware
from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.framework_names import framework_named, sharding_named
from rightsizer_engine.catalog.recipes import Recipe, recipe
from rightsizer_engine.domain import framework as frameworks
from rightsizer_engine.domain.architecture import Architecture, Family
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import Method, Workload
from rightsizer_engine.errors import InputError, UnknownNameError
from rightsizer_engine.search.types import Request
from rightsizer_engine.units import parse_duration_s, parse_usd
from rightsizer_engine.values import immutable

_PLAIN_NAME = re.compile(r"[\w.+~/-]{1,96}", re.ASCII)
_ADAPTERS = (Method.LORA, Method.QLORA)
_STATED_BATCH, _ASSUMED_BATCH = 0.05, 0.1
"""How far a batch may change to divide over the ranks; one only assumed is a power of two by then."""


@immutable
class ResolvedPlan:
    """A plan in the engine's types, computed once: defaults filled in, names looked up."""

    plan: TrainingPlan
    architecture: Architecture
    framework: Framework
    workload: Workload
    stacks: tuple[Framework, ...] = ()
    notes: tuple[str, ...] = ()

    def request(
        self,
        *,
        now: dt.datetime | None = None,
        clusters: tuple[Cluster, ...] | None = None,
        resizable: bool = True,
    ) -> Request:
        """The sizing request, with the deadline counted from `now` (default: the present).

        `clusters` replaces those of the plan's resources. `resizable`: the executor can resize the job.
        """
        spec, budget = self.plan.spec, self.plan.spec.budget
        return Request(
            architecture=self.architecture,
            workload=self.workload,
            framework=self.framework,
            framework_assumed=bool(self.stacks),
            stacks=self.stacks,
            notes=self.notes,
            clusters=clusters or _clusters_of(self.plan),
            deadline_s=deadline_s(self.plan, now=now),
            confidence=spec.deadline.confidence if spec.deadline else 0.9,
            max_usd=parse_usd(budget.max_usd) if budget and budget.max_usd is not None else None,
            min_gpus=spec.resources.min_gpus,
            max_gpus=spec.resources.max_gpus,
            spare_nodes=spec.resources.spare_nodes,
            pinned=_pinned(self.plan),
            gpu_counts=(spec.resources.gpus,) if spec.resources.gpus else (),
            objective=spec.objective,
            elastic=resizable and _can_resize(self.plan),
            grow_to=spec.elasticity.max_gpus,
            batch_tolerance=_STATED_BATCH if _batch_stated(self.plan) else _ASSUMED_BATCH,
        )


def _pinned(plan: TrainingPlan) -> dict[str, int]:
    """The stated degrees of parallelism, and the ZeRO stage that the framework's name states."""
    layout, stage = plan.spec.layout, sharding_named(plan.spec.launch.profile or plan.spec.launch.framework)
    named = {} if stage is None else {"sharding": int(stage)}
    return (layout.model_dump(by_alias=False, exclude_none=True) if layout else {}) | named


def _can_resize(plan: TrainingPlan) -> bool:
    """Whether a job may change its size: not Off, not a fixed size, resuming from checkpoints."""
    resources, launch = plan.spec.resources, plan.spec.launch
    fixed = resources.gpus is not None or resources.min_gpus == resources.max_gpus
    saves = launch.checkpoint is not None or not launch.command
    return plan.spec.resize_mode is not ElasticityMode.OFF and not fixed and saves


def resolve(plan: TrainingPlan) -> ResolvedPlan:
    """The plan in the engine's types. InputError and UnknownNameError name the wrong field."""
    architecture = _architecture(plan)
    stacks, stated_workload = _stacks(plan, architecture), plan.spec.workload
    framework = stacks[0] if stacks else _framework(plan)
    own = _recipe(plan, architecture)
    gpus = [lookup.gpu(name) for name in gpu_types(plan)]
    workload = workload_of(stated_workload, architecture, framework, recipe=own, gpus=gpus)
    return ResolvedPlan(
        plan=plan,
        architecture=architecture,
        framework=framework,
        workload=workload,
        stacks=stacks,
        notes=(
            *filter(None, [architecture.doubt]),
            *recipe_notes(stated_workload, workload, own, gpus),
            *filter(None, [plan.spec.launch.never_resized]),
        ),
    )


def _recipe(plan: TrainingPlan, architecture: Architecture) -> Recipe | None:
    """The pretraining recipe of the catalog's model. Another network with its name has none."""
    spec = plan.spec
    named = spec.model.name is not None and spec.workload.method is Method.PRETRAIN
    return recipe(architecture.name) if named else None


def _architecture(plan: TrainingPlan) -> Architecture:
    """The network: from the catalog, an inline config.json, or explicit dimensions."""
    model = plan.spec.model
    if model.name is not None:
        with _at("spec.model.name"):
            return lookup.model(model.name)
    if model.config is not None:
        with _at("spec.model.config"):
            from rightsizer_engine.catalog import huggingface  # noqa: PLC0415  (few plans bring a config)

            return huggingface.from_config(model.config, name=_called(model.config) or plan.metadata.name)
    if model.dimensions is not None:
        return architecture_of(model.dimensions, plan.metadata.name)
    raise InputError(
        "spec.model.configPath",
        value=model.config_path,
        remedy="was not read; paste the file's content as spec.model.config",
    )


def _called(config: Mapping[str, object]) -> str:
    """The config's own name, if it is a plain one."""
    name = config.get("_name_or_path")
    return name if isinstance(name, str) and _PLAIN_NAME.fullmatch(name) else ""


def _stacks(plan: TrainingPlan, architecture: Architecture) -> tuple[Framework, ...]:
    """The frameworks to choose from where a plan states neither framework nor command."""
    if _framework_stated(plan):
        return ()
    decoder, adapters = architecture.family is Family.DECODER, plan.spec.workload.method in _ADAPTERS
    return frameworks.assumed_frameworks(decoder=decoder, adapters=adapters)


def _framework(plan: TrainingPlan) -> Framework:
    """The engine's profile of the stated framework."""
    launch, adapters = plan.spec.launch, plan.spec.workload.method in _ADAPTERS
    if launch.profile is not None:
        with _at("spec.launch.profile"):
            return framework_named(launch.profile)
    return framework_named(launch.framework, adapters=adapters)


def _framework_stated(plan: TrainingPlan) -> bool:
    """Whether the plan states its framework, or brings a command of its own."""
    launch = plan.spec.launch
    return "framework" in launch.model_fields_set or launch.profile is not None or bool(launch.command)


def _batch_stated(plan: TrainingPlan) -> bool:
    workload = plan.spec.workload
    return workload.global_batch_sequences is not None or workload.global_batch_tokens is not None


def gpu_types(plan: TrainingPlan) -> tuple[str, ...]:
    """The catalog's names of the GPU types that a plan allows; empty: any type."""
    if not _stated_types(plan):
        return ()
    return tuple(cluster.gpu.name for cluster in _clusters_of(plan))


def _clusters_of(plan: TrainingPlan) -> tuple[Cluster, ...]:
    """The clusters that a plan's resources describe, one for each GPU type."""
    resources, types = plan.spec.resources, _stated_types(plan)
    if not types:
        raise InputError(
            "spec.resources.gpuTypes", value=None, remedy="name at least one GPU type, such as H100-SXM5-80GB"
        )
    stated = stated_hardware(plan)
    clusters = []
    for index, name in enumerate(types):
        with _at(
            f"spec.resources.gpuTypes[{index}]",
            nodeShape="spec.resources.nodeShape",
            node="spec.resources.nodeShape",
            gpuPowerWatts="spec.resources.gpuPowerWatts",
        ):
            shape = lookup.node(resources.node_shape) if resources.node_shape else None
            size = resources.gpus_per_node or (shape.gpus if shape else lookup.gpu(name).gpus_per_node)
            clusters.append(stated.cluster(name, size, nodes_shape=resources.node_shape))
    return tuple(clusters)


def _stated_types(plan: TrainingPlan) -> tuple[str, ...]:
    """The GPU types that a plan names, else its node shape's."""
    resources = plan.spec.resources
    if resources.gpu_types or resources.node_shape is None:
        return resources.gpu_types or ()
    with _at("spec.resources.nodeShape"):
        return (lookup.node(resources.node_shape).gpu,)


def deadline_s(plan: TrainingPlan, *, now: dt.datetime | None = None) -> float | None:
    """Seconds until a plan's deadline; None where it has none."""
    deadline = plan.spec.deadline
    if deadline is not None and deadline.finish_within is not None:
        return parse_duration_s(deadline.finish_within, field="spec.deadline.finishWithin")
    if deadline is None or deadline.finish_by is None:
        return None
    left_s = (deadline.finish_by - (now or dt.datetime.now(dt.UTC))).total_seconds()
    if left_s <= 0:
        raise InputError(
            "spec.deadline.finishBy",
            value=moment_text(deadline.finish_by),
            remedy="is past; name a later moment",
        )
    return left_s


@contextlib.contextmanager
def _at(path: str, **others: str) -> Iterator[None]:
    """Names an engine's error after the plan's field; `others` maps its words for other fields."""
    try:
        yield
    except UnknownNameError as error:
        where = others.get(error.field, path)
        raise UnknownNameError(
            where, value=str(error.value), candidates=error.candidates, remedy=error.remedy
        ) from None
    except InputError as error:
        head, _, rest = error.field.partition(".")
        where = others.get(head, f"{path}.{rest}" if rest else path)
        raise InputError(where, value=error.value, remedy=error.remedy) from None
