"""Between documents and the engine: a TrainingPlan becomes a Request, an answer a PlanReport."""

import contextlib
import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence

from rightsizer.catalog import lookup
from rightsizer.domain import framework as frameworks
from rightsizer.domain.architecture import Architecture, Family, parameters_matmul_active
from rightsizer.domain.framework import Framework
from rightsizer.domain.hardware import Cluster
from rightsizer.domain.workload import Method, Recompute, Workload, usual_batch_tokens
from rightsizer.errors import InputError, UnknownNameError
from rightsizer.search.explain import layout_text, verdict
from rightsizer.search.types import NoPlan, Option, Plan, Request
from rightsizer.units import parse_duration_s, parse_tokens, parse_usd
from rightsizer_api.launch import FrameworkName
from rightsizer_api.model import Dimensions
from rightsizer_api.placeholders import layout_values
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import moment_text
from rightsizer_api.report import Interval80, LayoutReport, Loss, PlanReport, Runner
from rightsizer_api.workload import Lora, WorkloadSpec

__all__ = [
    "architecture_of",
    "clusters_of",
    "deadline_s",
    "framework_of",
    "framework_stated",
    "layout_report",
    "report",
    "request",
    "workload_of",
]

_GIB = 2.0**30
_ADAPTERS = (Method.LORA, Method.QLORA)
_PRETRAIN_SEQUENCE, _TUNE_SEQUENCE = 8192, 2048  # defaults; documented on the field
_TUNE_BATCH_SEQUENCES = 64
_STATED_BATCH, _ASSUMED_BATCH = 0.05, 0.1
"""How far a batch may change to divide over the ranks; one only assumed is a power of two by then."""
_MOST_REASONS, _MOST_RUNNERS, _LONGEST_SENTENCE = 32, 16, 1024  # what the status schema holds


def request(
    plan: TrainingPlan, *, now: dt.datetime | None = None, clusters: tuple[Cluster, ...] | None = None
) -> Request:
    """The question that a plan asks the engine, at a moment (default: this one), on given clusters if any."""
    resources, architecture, profile = plan.spec.resources, architecture_of(plan), framework_of(plan)
    budget = plan.spec.budget
    pins = plan.spec.layout.model_dump(by_alias=False, exclude_none=True) if plan.spec.layout else {}
    return Request(
        architecture=architecture,
        workload=workload_of(plan, architecture, profile),
        framework=profile,
        framework_assumed=not framework_stated(plan),
        clusters=clusters or clusters_of(plan),
        deadline_s=deadline_s(plan, now=now),
        confidence=plan.spec.deadline.confidence if plan.spec.deadline else 0.9,
        max_usd=parse_usd(budget.max_usd) if budget and budget.max_usd is not None else None,
        min_gpus=resources.min_gpus,
        max_gpus=resources.max_gpus,
        spare_nodes=resources.spare_nodes,
        pinned=pins,
        gpu_counts=(resources.gpus,) if resources.gpus else (),
        batch_tolerance=_STATED_BATCH if batch_stated(plan) else _ASSUMED_BATCH,
    )


def batch_stated(plan: TrainingPlan) -> bool:
    """Whether the plan says how large a batch is."""
    said = plan.spec.workload
    return said.global_batch_sequences is not None or said.global_batch_tokens is not None


def architecture_of(plan: TrainingPlan) -> Architecture:
    """The network: of the catalog, of an inline config.json, or of the dimensions given."""
    model = plan.spec.model
    if model.name is not None:
        with _at("spec.model.name"):
            return lookup.model(model.name)
    if model.config is not None:
        with _at("spec.model.config"):
            from rightsizer.catalog import huggingface  # noqa: PLC0415  (few plans bring a config)

            return huggingface.from_config(model.config, name=plan.metadata.name)
    if model.dimensions is not None:
        return _from_dimensions(model.dimensions, plan.metadata.name)
    raise InputError(
        "spec.model.configPath",
        value=model.config_path,
        remedy="was not read; paste the file's content as spec.model.config",
    )


def workload_of(plan: TrainingPlan, architecture: Architecture, framework: Framework) -> Workload:
    """The job, with the sequence length and batch that a plan may leave out."""
    spec = plan.spec.workload
    lora = spec.lora or Lora.model_construct()
    sequence = spec.sequence_length or _usual_sequence(spec, architecture)
    return Workload(
        method=spec.method,
        tokens=_tokens(spec),
        sequence_tokens=sequence,
        global_batch_sequences=_batch(spec, architecture, sequence),
        precision=spec.precision,
        optimizer=spec.optimizer,
        recompute=Recompute[spec.recompute.upper()],
        quantised_bits=spec.quantised_bits,
        quantiser=spec.quantiser,
        scaling=spec.scaling,
        loss=spec.loss,
        compile=spec.compile,
        attention=spec.attention,
        library_year=_year(spec.library_version),
        lora_rank=lora.rank,
        lora_targets=lora.targets or framework.lora_targets,
    )


def framework_of(plan: TrainingPlan) -> Framework:
    """The engine's profile of what the script is built on; the honest unknown one for a custom script.

    A plan that only asks (no framework, no command) is answered for the usual stack of its kind.
    """
    launch, adapters = plan.spec.launch, plan.spec.workload.method in _ADAPTERS
    if not framework_stated(plan):
        decoder = architecture_of(plan).family is Family.DECODER
        return frameworks.assumed_framework(decoder=decoder, adapters=adapters)
    if launch.profile is not None:
        with _at("spec.launch.profile"):
            return frameworks.framework(launch.profile)
    if launch.framework is FrameworkName.CUSTOM and adapters:
        return frameworks.unknown_framework(model_parallel=False, sharded=True, adapters=True)
    if launch.framework is FrameworkName.ACCELERATE and adapters:
        return frameworks.framework("peft")
    return frameworks.framework(launch.framework)


def framework_stated(plan: TrainingPlan) -> bool:
    """Whether the plan says, or must know, what its script is built on."""
    launch = plan.spec.launch
    return "framework" in launch.model_fields_set or launch.profile is not None or bool(launch.command)


def clusters_of(plan: TrainingPlan) -> tuple[Cluster, ...]:
    """The clusters that a plan's resources describe, one for each GPU type."""
    resources, budget = plan.spec.resources, plan.spec.budget
    if not resources.gpu_types:
        raise InputError(
            "spec.resources.gpuTypes", value=None, remedy="name at least one GPU type, such as H100-SXM5-80GB"
        )
    rate = resources.interconnect.inter_node_gbps if resources.interconnect else None
    price = parse_usd(budget.usd_per_gpu_hour) if budget and budget.usd_per_gpu_hour is not None else None
    made = []
    for index, name in enumerate(resources.gpu_types):
        with _at(
            f"spec.resources.gpuTypes[{index}]",
            nodeShape="spec.resources.nodeShape",
            node="spec.resources.nodeShape",
        ):
            made.append(
                lookup.cluster(
                    name,
                    gpus_per_node=resources.gpus_per_node,
                    nodes_shape=resources.node_shape,
                    inter_bytes_per_s=rate * 1e9 if rate else None,
                    price=price,
                )
            )
    return tuple(made)


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


def report(answer: Plan | NoPlan) -> PlanReport:
    """The answer as a document."""
    if isinstance(answer, NoPlan):
        return PlanReport(
            feasible=False,
            verdict=_sentence(verdict(answer)),
            binding=answer.binding,
            confidence=answer.request.confidence,
            deadline_seconds=_rounded(answer.request.deadline_s),
            needs_gpus=answer.needs_gpus,
            reasons=(_sentence(answer.reason),),
            runners_up=_runners(answer.nearest),
        )
    return _plan_report(answer)


def layout_report(option: Option) -> LayoutReport:
    """An option's layout as a document."""
    values = layout_values(option.layout)
    return LayoutReport.model_validate({k: v for k, v in values.items() if k != "gpus"})


def _plan_report(plan: Plan) -> PlanReport:
    option, asked = plan.option, plan.request
    return PlanReport(
        feasible=True,
        verdict=_sentence(verdict(plan)),
        binding=plan.binding,
        gpus=option.gpus,
        gpu_type=option.cluster.gpu.name,
        nodes=option.nodes,
        spare_nodes=option.spare_nodes,
        layout=layout_report(option),
        layout_text=layout_text(option.layout),
        finish_seconds=_rounded(option.finish_s),
        interval=Interval80(
            low_seconds=_number(option.finish_lo_s), high_seconds=_number(option.finish_hi_s)
        ),
        confidence=asked.confidence,
        finish_at_confidence_seconds=_rounded(option.finish_at_confidence_s),
        deadline_seconds=_rounded(asked.deadline_s),
        cost_usd=_rounded(option.cost_usd),
        energy_kwh=_rounded(option.energy_kwh),
        memory_gib=_rounded(option.device_bytes / _GIB),
        memory_limit_gib=_rounded(option.memory_limit_bytes / _GIB),
        allocated_gib=_rounded(option.allocated_bytes / _GIB),
        memory_by_cause_gib=_causes(option.memory_by_cause_bytes, _GIB),
        step_seconds=_rounded(option.step_s),
        step_by_cause_seconds=_causes(option.step_by_cause_s),
        steps=math.ceil(
            asked.workload.tokens / (option.global_batch_sequences * asked.workload.sequence_tokens)
        ),
        global_batch_sequences=option.global_batch_sequences,
        tokens_per_second=_rounded(option.tokens_per_s),
        mfu=_rounded(option.mfu),
        goodput=Loss(goodput=_number(option.goodput), lost_by_cause=_causes(option.lost_by_cause)),
        checkpoint_interval_seconds=_rounded(option.checkpoint_interval_s),
        reasons=tuple(_sentence(reason) for reason in plan.reasons[:_MOST_REASONS]),
        runners_up=_runners(plan.runners_up),
    )


def _runners(options: Sequence[Option]) -> tuple[Runner, ...]:
    """The first few; an option that would never finish says nothing, and JSON has no infinity."""
    ending = [option for option in options if math.isfinite(option.finish_at_confidence_s)]
    return tuple(_runner(option) for option in ending[:_MOST_RUNNERS])


def _runner(option: Option) -> Runner:
    return Runner(
        gpus=option.gpus,
        gpu_type=option.cluster.gpu.name,
        nodes=option.nodes,
        layout=layout_report(option),
        layout_text=layout_text(option.layout),
        finish_seconds=_number(option.finish_s),
        finish_at_confidence_seconds=_number(option.finish_at_confidence_s),
        cost_usd=_rounded(option.cost_usd),
        memory_gib=_number(option.device_bytes / _GIB),
        step_seconds=_number(option.step_s),
    )


def _from_dimensions(given: Dimensions, name: str) -> Architecture:
    """The dimensions with their documented defaults filled in."""
    stated = given.model_dump(by_alias=False, exclude_none=True, exclude={"family", "attention"})
    usual = {
        "ffn_hidden": 4 * given.hidden,
        "kv_heads": given.heads,
        "head_dim": given.hidden // given.heads,
    }
    return Architecture(
        name=name,
        family=given.family,
        attention=given.attention,
        source="dimensions of the plan",
        **(usual | stated),
    )


def _usual_sequence(spec: WorkloadSpec, architecture: Architecture) -> int:
    usual = _PRETRAIN_SEQUENCE if spec.method is Method.PRETRAIN else _TUNE_SEQUENCE
    if spec.dataset is not None:
        usual = spec.dataset.length
    longest = architecture.max_sequence or architecture.fixed_tokens
    return min(usual, longest) if longest else usual


def _tokens(spec: WorkloadSpec) -> float:
    if spec.tokens is not None:
        return parse_tokens(spec.tokens, field="spec.workload.tokens")
    if spec.dataset is None:
        raise InputError("spec.workload.tokens", value=None, remedy="give tokens or dataset")
    examples = parse_tokens(spec.dataset.examples, field="spec.workload.dataset.examples")
    return max(1.0, examples * spec.dataset.length * spec.dataset.epochs)


def _batch(spec: WorkloadSpec, architecture: Architecture, sequence: int) -> int:
    if spec.global_batch_sequences is not None:
        return spec.global_batch_sequences
    if spec.global_batch_tokens is None:
        return _usual_batch(spec, architecture, sequence)
    field = "spec.workload.globalBatchTokens"
    tokens = parse_tokens(spec.global_batch_tokens, field=field)
    if tokens < sequence:
        remedy = f"is less than one sequence of {sequence} tokens"
        raise InputError(field, value=spec.global_batch_tokens, remedy=remedy)
    return max(1, round(tokens / sequence))


def _usual_batch(spec: WorkloadSpec, architecture: Architecture, sequence: int) -> int:
    """What suits the compute, as a power of two: it divides over most numbers of GPUs."""
    if spec.method is not Method.PRETRAIN:
        return _TUNE_BATCH_SEQUENCES
    parameters = float(parameters_matmul_active(architecture))
    tokens = usual_batch_tokens(parameters=parameters, tokens=_tokens(spec))
    return int(2 ** max(0, round(math.log2(tokens / sequence))))


def _year(release: str | None) -> float:
    """A release month as a year with a fraction; 0 where none is stated."""
    if release is None:
        return 0.0
    year, month = (int(part) for part in release.replace(".", "-").split("-"))
    return year + (2000 if year < 100 else 0) + (month - 1) / 12


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


def _sentence(text: str) -> str:
    return text if len(text) <= _LONGEST_SENTENCE else text[: _LONGEST_SENTENCE - 3] + "..."


def _number(value: float) -> float:
    """Six significant digits: more would be noise, and differ between machines."""
    return float(f"{value:.6g}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else _number(value)


def _causes(causes: Mapping[str, float], scale: float = 1.0) -> dict[str, float]:
    return {name: _number(value / scale) for name, value in causes.items()}
