"""The plugin's response to a submitted job: the fields of its size, or a refusal, in words. Pure."""

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence

from rightsizer_api import TrainingPlan
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.types import NoPlan
from rightsizer_engine.units import format_duration
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits
from rightsizer_slurm.cluster.comment import parse
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.jobs import gres_gpus, noted
from rightsizer_slurm.cluster.pools import Pool
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.bounds import Bounds, Offer, bounds_of, exceeded, within_gpus, without_size
from rightsizer_slurm.submit.choice import NoPlacement, choose
from rightsizer_slurm.submit.constraints import NotUnderstoodError
from rightsizer_slurm.submit.placement import AtLimit, Placement
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.validation import message, valid_plan

_LONGEST_NOTE = 180  # the plugin accepts 200 characters with the brackets


def respond(
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
        sized = without_size(request) if comment.run else request
        beneath = plan_of_file(comment.plan) if comment.plan else None
        plan = within_gpus(valid_plan(comment, now=now, beneath=beneath), sized)
    except RightsizerError as error:
        return SizingResponse(verdict=SizingVerdict.REFUSE, say=message(error), code="comment")
    try:
        bounds = bounds_of(
            plan, sized, cluster=cluster, site=site, limits=limits or AccountingLimits(), now=now
        )
        chosen = choose(bounds)
    except NotUnderstoodError as error:
        say = f"not sized ({error}); the job is submitted unchanged"
        return SizingResponse(verdict=SizingVerdict.KEEP, say=say)
    except RightsizerError as error:
        return SizingResponse(verdict=SizingVerdict.REFUSE, say=message(error), code="size")
    if isinstance(chosen, NoPlacement):
        return _refusal(chosen, bounds)
    return _verified(chosen, request, bounds.cluster) if comment.run else _sized(chosen, bounds)


def _verified(placement: Placement, stated: SizingRequest, cluster: SlurmCluster) -> SizingResponse:
    """A job that claims a size from `rightsizer sbatch` keeps it if its plan needs as many GPUs."""
    needed = placement.nodes * placement.node_gpus
    nodes = stated.max_nodes or stated.min_nodes or 1
    whole = max((node.gpus for node in cluster.nodes), default=0) if stated.exclusive == 0 else 0
    gpus = max(nodes * max(gres_gpus(stated.gres)[1], whole), gres_gpus(stated.tres_per_job)[1])
    if gpus > needed:
        say = f"the job asks for {gpus} GPUs, its plan needs {needed}"
        return SizingResponse(verdict=SizingVerdict.REFUSE, say=say, code="denied")
    note = noted("", f"nodes={nodes} gpus={gpus} as rightsizer sbatch sized it")
    return SizingResponse(
        verdict=SizingVerdict.OK,
        say=f"its plan needs {needed} GPUs, the job has {gpus}",
        fields={"admin_comment": note},
    )


def _refusal(refused: NoPlacement, bounds: Bounds) -> SizingResponse:
    """A refusal with the bounds; its code names the one that Slurm's error should name."""
    request, offer, parts = bounds.request, refused.offer, list(refused.offer.binding)
    if isinstance(refused.cause, NoPlan):
        left = (f"{format_duration(max(0.0, left_s))} of {name}" for name, left_s in bounds.left_s.items())
        parts = [*_bounds_text(request, offer), *left, *parts]
        reason = verdict(refused.cause)
    else:
        reason = message(refused.cause)
    within = f" [within {' and '.join(parts)}]" if parts else ""
    codes = {"policy": offer.binding, "time": request.time_limit, "nodes": request.most_nodes}
    code = next((name for name, bound in codes.items() if bound), "size")
    return SizingResponse(verdict=SizingVerdict.REFUSE, say=f"{reason}{within}", code=code)


def _sized(placement: Placement, bounds: Bounds) -> SizingResponse:
    """The fields of a size. They never exceed the user's request, and never set tasks per node.

    A time limit of the user's own is lowered only where the job would pass a --deadline.
    """
    nodes, request = placement.nodes, bounds.request
    left_s = min(bounds.left_s.values(), default=math.inf)
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
        return SizingResponse(verdict=SizingVerdict.KEEP, say=say, code="fault")
    return SizingResponse(
        verdict=SizingVerdict.OK,
        say=f"{placement.summary}{_changes(values, request)}",
        fields=values,
        variables=_variables(placement),
    )


def _decision(placement: Placement, minutes: int) -> str:
    """The size, what prevents a smaller one, layout, end and price, in characters that the plugin takes."""
    size = f"nodes={placement.nodes} gpus={placement.option.layout.gpus} minutes={minutes}"
    size += f" bound={placement.sized.binding}"
    ends = "ends at its time limit, before the training: " if placement.at_limit is AtLimit.ENDS else ""
    text = ends + verdict(placement.sized).replace("$", "USD ")
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
        "RIGHTSIZER_SEQUENCE_LENGTH": str(placement.sized.request.workload.sequence_tokens),
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


def _bounds_text(request: SizingRequest, offer: Offer) -> list[str]:
    """The bounds by the user's options and by the partitions, shown with a refusal."""
    parts = []
    if request.most_nodes:
        parts.append(f"{request.most_nodes} nodes{_tasks_text(request)}")
    if request.time_limit:
        parts.append(f"a time limit of {format_duration(60.0 * request.time_limit)}")
    elif (limits := _times(offer.everywhere)) and limits == _times(offer.allowed):
        parts.append(f"the partition's time limit of {format_duration(max(limits))}")
    return parts


def _tasks_text(request: SizingRequest) -> str:
    """That tasks bound the nodes: before Slurm 23.02 --ntasks-per-node alone does."""
    if request.max_nodes or request.min_nodes:
        return ""
    return f" by {request.num_tasks} tasks; --nodes allows more"


def _times(candidates: Sequence[Pool]) -> set[float]:
    return {pool.max_time_s for pool in candidates if pool.max_time_s}
