"""The plugin's answer for a submitted job: its size on this cluster, or a refusal. Pure."""

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from rightsizer_api import TrainingPlan, sizing
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.types import NoPlan
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits, within
from rightsizer_slurm.cluster.comment import parse
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.jobs import gres_gpus, noted
from rightsizer_slurm.cluster.pools import Pool, pools
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.best_placement import best, bounds_of
from rightsizer_slurm.submit.constraints import (
    NotUnderstoodError,
    check_gpus,
    check_tasks,
    narrowed,
    time_left_s,
    with_tasks,
)
from rightsizer_slurm.submit.placement import AtLimit, Placement
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, Verdict
from rightsizer_slurm.submit.user_bounds import exceeded
from rightsizer_slurm.submit.validation import message, valid_plan

_LONGEST_NOTE = 180  # the plugin accepts 200 characters with the brackets


def answer(
    request: SizingRequest,
    *,
    cluster: SlurmCluster,
    site: SiteConfig,
    now: dt.datetime,
    plan_of_file: Callable[[str], TrainingPlan],
    limits: AccountingLimits | None = None,
) -> SizingResponse:
    """The size of a job, or a refusal with its reason in one line.

    `limits` are those of QOS and associations; None means none.
    """
    try:
        comment = parse(request.comment)
        stated, request = request, _without_size(request) if comment.run else request
        beneath = plan_of_file(comment.plan) if comment.plan else None
        plan = _bounded(valid_plan(comment, now=now, beneath=beneath), request)
    except RightsizerError as error:
        return SizingResponse(verdict=Verdict.REFUSE, say=message(error), code="comment")
    try:
        check_gpus(request)
        allowed = narrowed(cluster, request)
        left = time_left_s(cluster, request, now)
        context = _Context(
            cluster=allowed, site=site, limits=limits or AccountingLimits(), now=now, left=left
        )
        response = _answered(with_tasks(plan, request), request, context)
        return _verified(response, stated, allowed) if comment.run else response
    except NotUnderstoodError as error:
        return SizingResponse(
            verdict=Verdict.KEEP, say=f"not sized ({error}); the job is submitted unchanged"
        )
    except RightsizerError as error:
        return SizingResponse(verdict=Verdict.REFUSE, say=message(error), code="size")


def _without_size(request: SizingRequest) -> SizingRequest:
    """The request of a job of `rightsizer sbatch` as if it had no size, to size its plan again."""
    kept = ("comment", "mode", "uid", "user", "account", "qos", "partition", "reservation")
    return SizingRequest(**{name: getattr(request, name) for name in kept}, requeues=1)


def _verified(response: SizingResponse, stated: SizingRequest, cluster: SlurmCluster) -> SizingResponse:
    """A job that says that `rightsizer sbatch` sized it keeps its size if its plan needs as many GPUs."""
    if response.verdict is not Verdict.OK:
        return response
    needed = int(response.fields["max_nodes"]) * gres_gpus(str(response.fields["gres"]))[1]
    nodes = stated.max_nodes or stated.min_nodes or 1
    whole = max((node.gpus for node in cluster.nodes), default=0) if stated.exclusive == 0 else 0
    gpus = max(nodes * max(gres_gpus(stated.gres)[1], whole), gres_gpus(stated.tres_per_job)[1])
    if gpus > needed:
        say = f"the job asks for {gpus} GPUs, its plan needs {needed}"
        return SizingResponse(verdict=Verdict.REFUSE, say=say, code="denied")
    note = noted("", f"nodes={nodes} gpus={gpus} as rightsizer sbatch sized it")
    return SizingResponse(
        verdict=Verdict.OK,
        say=f"its plan needs {needed} GPUs, the job has {gpus}",
        fields={"admin_comment": note},
    )


def _answered(plan: TrainingPlan, request: SizingRequest, context: "_Context") -> SizingResponse:
    """The answer on the allowed part of the cluster."""
    cluster = context.cluster
    result = _placed(plan, request, context)
    has_down_parts = any(not node.up for node in cluster.nodes) or any(
        not partition.up for partition in cluster.partitions
    )
    if result.verdict is Verdict.REFUSE and has_down_parts:
        # Slurm lets a job wait for a node that is down: refuse only what does not fit the whole cluster
        return _placed(plan, request, replace(context, cluster=_all_up(cluster)))
    return result


@immutable
class _Context:
    """The inputs of an answer beside the request."""

    cluster: SlurmCluster
    site: SiteConfig
    limits: AccountingLimits
    now: dt.datetime
    left: Mapping[str, float] = field(default_factory=dict)


def _placed(plan: TrainingPlan, request: SizingRequest, context: _Context) -> SizingResponse:
    """The plan's size on this cluster, or a refusal."""
    binding: tuple[str, ...] = ()
    try:
        everywhere = _pools(plan, request, context)
        allowed, binding = within(
            everywhere,
            context.limits,
            partitions=context.cluster.partitions,
            user=request.user,
            account=request.account,
            qos=request.qos,
        )
        placement = _best(plan, allowed, request, context)
        if isinstance(placement, Placement):
            placement = _whole(placement, plan, allowed, request, context)
    except NotUnderstoodError:
        raise
    except RightsizerError as error:
        return _refusal(f"{message(error)}{_bracketed(binding)}", request, binding)
    if isinstance(placement, NoPlan):
        parts = (*_bounds_text(request, allowed, everywhere), *_left_text(context), *binding)
        return _refusal(f"{verdict(placement)}{_bracketed(parts)}", request, binding)
    return _response(placement, request, left_s=min(context.left.values(), default=math.inf))


def _whole(
    placement: Placement,
    plan: TrainingPlan,
    candidates: Sequence[Pool],
    request: SizingRequest,
    context: _Context,
) -> Placement | NoPlan:
    """The placement, or one that agrees with the user's tasks and with --exclusive."""
    other: Placement | NoPlan = placement
    whole = placement.pool.node_gpus
    if request.exclusive == 0 and placement.node_gpus < whole:
        if request.mode == "enforce":
            remedy = f"takes all {whole} GPUs of a node, the plan needs {placement.node_gpus}; leave it out"
            raise InputError("--exclusive", value=None, remedy=remedy)
        other = _best(with_tasks(plan, request, gpus=whole), (placement.pool,), request, context)
    elif request.num_tasks and not request.node_tasks:
        try:
            check_tasks(placement, request)
        except NotUnderstoodError:
            other = _best(with_tasks(plan, request, gpus=request.num_tasks), candidates, request, context)
            if isinstance(other, NoPlan):
                raise
    if isinstance(other, Placement):
        check_tasks(other, request)
    return other


def _best(
    plan: TrainingPlan, candidates: Sequence[Pool], request: SizingRequest, context: _Context
) -> Placement | NoPlan:
    bounds = bounds_of(request, context.left.values())
    return best(plan, candidates, bounds, have=context.cluster.summary(), now=context.now)


def _left_text(context: _Context) -> list[str]:
    return [f"{format_duration(max(0.0, left))} of {name}" for name, left in context.left.items()]


def _refusal(say: str, request: SizingRequest, binding: Sequence[str]) -> SizingResponse:
    """A refusal; its code names the bound that Slurm's error should name."""
    bounds = {"policy": binding, "time": request.time_limit, "nodes": request.most_nodes}
    code = next((name for name, bound in bounds.items() if bound), "size")
    return SizingResponse(verdict=Verdict.REFUSE, say=say, code=code)


def _all_up(cluster: SlurmCluster) -> SlurmCluster:
    """The cluster with every node and partition up, and the returned nodes in use."""
    return replace(
        cluster,
        partitions=tuple(replace(partition, up=True) for partition in cluster.partitions),
        nodes=tuple(
            node if node.up else replace(node, up=True, gpus_used=node.gpus) for node in cluster.nodes
        ),
    )


def _bounded(plan: TrainingPlan, request: SizingRequest) -> TrainingPlan:
    """The plan within the GPUs that the user's own --gpus allows."""
    _, most = gres_gpus(request.tres_per_job)
    resources = plan.spec.resources
    if not most or (resources.max_gpus is not None and resources.max_gpus <= most):
        return plan
    if resources.min_gpus > most or (resources.gpus or 0) > most:
        least = max(resources.min_gpus, resources.gpus or 0)
        raise InputError("--gpus", value=most, remedy=f"is less than the {least} that the plan requires")
    spec = plan.spec.model_copy(update={"resources": resources.model_copy(update={"max_gpus": most})})
    return plan.model_copy(update={"spec": spec})


def _pools(plan: TrainingPlan, request: SizingRequest, context: _Context) -> tuple[Pool, ...]:
    """The pools that the job may use, by its options and the site's modes."""
    _, node_gpus = gres_gpus(request.gres)
    candidates = pools(
        context.cluster,
        names=context.site.gpus,
        wanted=sizing.gpu_types(plan),
        partition=request.partition,
        account=request.account,
        node_gpus=node_gpus or plan.spec.resources.gpus_per_node or _tasks_of_node(request),
    )
    kind, mode_of = request.gpu_type, context.site.mode_of
    return tuple(
        pool
        for pool in candidates
        if (not kind or pool.gres == kind) and (request.partition or mode_of(pool.partition) != "off")
    )


def _tasks_of_node(request: SizingRequest) -> int | None:
    """GPUs of a node for a user who said how many tasks it runs: one for each."""
    tasks = request.node_tasks or 1
    return tasks if tasks > 1 else None


def _response(placement: Placement, request: SizingRequest, *, left_s: float) -> SizingResponse:
    """The fields of a size. They never exceed the user's request, and never set tasks per node.

    A time limit of the user's own is lowered only where the job would pass a --deadline (`left_s` from now).
    """
    nodes = placement.nodes
    minutes = max(round(placement.time_s / 60.0), request.time_min or 0)
    values: dict[str, int | str] = {
        "min_nodes": nodes,
        "max_nodes": nodes,
        "gres": placement.gres,
        "partition": placement.pool.partition,
        **_tasks(placement, request),
        "admin_comment": noted("", _decision(placement, minutes)),
    }
    if request.tres_per_job:
        values["tres_per_job"] = ""
    if request.time_limit is None or 60.0 * request.time_limit > left_s:
        values["time_limit"] = minutes
    wrong = exceeded(values, request)
    if wrong:
        say = f"the size exceeds your {wrong}"
        return SizingResponse(verdict=Verdict.KEEP, say=say, code="fault")
    return SizingResponse(
        verdict=Verdict.OK,
        say=f"{placement.summary}{_changes(values, request)}",
        fields=values,
        variables=_variables(placement),
    )


def _decision(placement: Placement, minutes: int) -> str:
    """The size, what prevents a smaller one, layout, end and price, in characters that the plugin takes."""
    size = f"nodes={placement.nodes} gpus={placement.option.layout.gpus} minutes={minutes}"
    size += f" bound={placement.answer.binding}"
    ends = "ends at its time limit, before the training: " if placement.at_limit is AtLimit.ENDS else ""
    text = ends + verdict(placement.answer).replace("$", "USD ")
    return f"{size}: {re.sub(r'[^A-Za-z0-9 _.=:,/+%@~-]', '', text)}"[:_LONGEST_NOTE]


def _tasks(placement: Placement, request: SizingRequest) -> dict[str, int]:
    """Tasks and cores: one task a node, unless the user requested others."""
    nodes, node_tasks = placement.nodes, request.node_tasks
    cpus = request.cpus_per_task
    if node_tasks:
        tasks = nodes * node_tasks
        return ({"num_tasks": tasks} if request.num_tasks else {}) | {"min_cpus": tasks * (cpus or 1)}
    if request.num_tasks:
        return {"min_cpus": max(nodes, request.num_tasks * (cpus or 1))}
    cores = cpus or placement.cores
    return {"num_tasks": nodes, "cpus_per_task": cores, "min_cpus": nodes * cores}


def _variables(placement: Placement) -> dict[str, str]:
    """The RIGHTSIZER_* variables for the batch script."""
    option = placement.option
    layout = option.layout
    return {
        "RIGHTSIZER_NODES": str(placement.nodes),
        "RIGHTSIZER_GPUS": str(layout.gpus),
        "RIGHTSIZER_GPUS_PER_NODE": str(placement.node_gpus),
        "RIGHTSIZER_DP": str(layout.dp),
        "RIGHTSIZER_TP": str(layout.tp),
        "RIGHTSIZER_PP": str(layout.pp),
        "RIGHTSIZER_CP": str(layout.cp),
        "RIGHTSIZER_EP": str(layout.ep),
        "RIGHTSIZER_MICRO_BATCH": str(layout.micro_batch),
        "RIGHTSIZER_GLOBAL_BATCH_SEQUENCES": str(option.global_batch_sequences),
        "RIGHTSIZER_SEQUENCE_LENGTH": str(placement.answer.request.workload.sequence_tokens),
    }


def _changes(values: Mapping[str, int | str], request: SizingRequest) -> str:
    """The user's options that were lowered."""
    parts = []
    nodes, total = request.max_nodes, gres_gpus(request.tres_per_job)[1]
    if nodes and nodes != values["max_nodes"]:
        parts.append(f"--nodes {nodes} to {values['max_nodes']}")
    node_gpus, placed_gpus = gres_gpus(request.gres)[1], gres_gpus(str(values["gres"]))[1]
    if node_gpus and node_gpus != placed_gpus:
        parts.append(f"GPUs of a node {node_gpus} to {placed_gpus}")
    if total and total != int(values["max_nodes"]) * placed_gpus:
        parts.append(f"--gpus {total} to {int(values['max_nodes']) * placed_gpus}")
    if "," in request.partition:
        parts.append(f"--partition {request.partition} to {values['partition']}")
    return f" (changed: {', '.join(parts)})" if parts else ""


def _bounds_text(request: SizingRequest, allowed: Sequence[Pool], everywhere: Sequence[Pool]) -> list[str]:
    """The bounds by the user's options and by the partitions (`everywhere`), shown with a refusal."""
    parts = []
    if request.most_nodes:
        parts.append(f"{request.most_nodes} nodes{_tasks_text(request)}")
    if request.time_limit:
        parts.append(f"a time limit of {format_duration(60.0 * request.time_limit)}")
    elif (limits := _times(everywhere)) and limits == _times(allowed):
        parts.append(f"the partition's time limit of {format_duration(max(limits))}")
    return parts


def _tasks_text(request: SizingRequest) -> str:
    """That tasks bound the nodes: before Slurm 23.02 --ntasks-per-node alone does."""
    if request.max_nodes or request.min_nodes:
        return ""
    return f" by {request.num_tasks} tasks; --nodes allows more"


def _times(candidates: Sequence[Pool]) -> set[float]:
    return {pool.max_time_s for pool in candidates if pool.max_time_s}


def _bracketed(parts: Sequence[str]) -> str:
    return f" [within {' and '.join(parts)}]" if parts else ""
