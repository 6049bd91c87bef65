"""The plugin's answer for a submitted job: its size on this cluster, or a refusal. Pure."""

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rightsizer.errors import InputError, RightsizerError
from rightsizer.search.explain import verdict
from rightsizer.search.types import NoPlan
from rightsizer.units import format_duration
from rightsizer.values import immutable
from rightsizer_api import TrainingPlan, sizing
from rightsizer_api.resources import Deadline
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits, within
from rightsizer_slurm.cluster.comment import parse, plan_of
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.jobs import gres_gpus
from rightsizer_slurm.cluster.pools import Pool, pools
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.placement import Asked, Fitted, finish_limit_s, fit
from rightsizer_slurm.submit.protocol import Answer, Question, Verdict

__all__ = ["answer"]

_SHORTEST_S = 60.0
_NO_CHECKPOINT = "spec.launch.checkpoint"


def answer(
    question: Question,
    *,
    here: SlurmCluster,
    site: SiteConfig,
    now: dt.datetime,
    plan_of_file: Callable[[str], TrainingPlan],
    limits: AccountingLimits | None = None,
) -> Answer:
    """The size of a job, or a refusal with its reason in one line.

    `limits` are those of QOS and associations; None means none.
    """
    try:
        comment = parse(question.comment)
        beneath = plan_of_file(comment.plan) if comment.plan else None
        plan = _bounded(plan_of(comment, beneath=beneath), question)
    except RightsizerError as error:
        return Answer(verdict=Verdict.REFUSE, say=_message(error))
    context = _Context(here=here, site=site, limits=limits or AccountingLimits(), now=now)
    result = _placed(plan, question, context)
    away = any(not node.up for node in here.nodes) or any(not each.up for each in here.partitions)
    if result.verdict is Verdict.REFUSE and away:
        # a node that is down may come back, and Slurm lets jobs wait for it: refuse only what never fits
        later = _placed(plan, question, replace(context, here=_all_up(here)))
        return later if later.verdict is Verdict.OK else result
    return result


@immutable
class _Context:
    """The inputs beside the question."""

    here: SlurmCluster
    site: SiteConfig
    limits: AccountingLimits
    now: dt.datetime


def _placed(plan: TrainingPlan, question: Question, context: _Context) -> Answer:
    """The plan's size on this cluster, or a refusal."""
    binding: tuple[str, ...] = ()
    try:
        everywhere = _pools(plan, question, context)
        allowed, binding = within(
            everywhere,
            context.limits,
            partitions=context.here.partitions,
            user=question.user,
            account=question.account,
            qos=question.qos,
        )
        fitted = _best(plan, allowed, question, context)
    except RightsizerError as error:
        return Answer(verdict=Verdict.REFUSE, say=f"{_message(error)}{_bracketed(binding)}")
    if isinstance(fitted, NoPlan):
        parts = (*_bounds_in_words(question, allowed, everywhere), *binding)
        return Answer(verdict=Verdict.REFUSE, say=f"{verdict(fitted)}{_bracketed(parts)}")
    return _sized(fitted, question)


def _all_up(here: SlurmCluster) -> SlurmCluster:
    """The cluster with every node and partition up, and the returned nodes in use."""
    return replace(
        here,
        partitions=tuple(replace(partition, up=True) for partition in here.partitions),
        nodes=tuple(node if node.up else replace(node, up=True, gpus_used=node.gpus) for node in here.nodes),
    )


def _bounded(plan: TrainingPlan, question: Question) -> TrainingPlan:
    """The plan within the GPUs that the user's own --gpus allows."""
    _, most = gres_gpus(question.tres_per_job)
    resources = plan.spec.resources
    if not most or (resources.max_gpus is not None and resources.max_gpus <= most):
        return plan
    if resources.min_gpus > most or (resources.gpus or 0) > most:
        least = max(resources.min_gpus, resources.gpus or 0)
        raise InputError("--gpus", value=most, remedy=f"is less than the {least} that the plan requires")
    spec = plan.spec.model_copy(update={"resources": resources.model_copy(update={"max_gpus": most})})
    return plan.model_copy(update={"spec": spec})


def _pools(plan: TrainingPlan, question: Question, context: _Context) -> tuple[Pool, ...]:
    """The pools that the job may use, by its options and the site's modes."""
    _, node_gpus = gres_gpus(question.gres)
    candidates = pools(
        context.here,
        names=context.site.gpus,
        wanted=sizing.gpu_types(plan),
        partition=question.partition,
        account=question.account,
        node_gpus=node_gpus or plan.spec.resources.gpus_per_node,
    )
    kind, mode_of = question.gpu_type, context.site.mode_of
    return tuple(
        pool
        for pool in candidates
        if (not kind or pool.gres == kind) and (question.partition or mode_of(pool.partition) != "off")
    )


def _best(
    plan: TrainingPlan, candidates: Sequence[Pool], question: Question, context: _Context
) -> Fitted | NoPlan:
    """The cheapest size. Without a checkpoint path the training must end within its time limit."""
    limit_s = 60.0 * question.time_limit if question.time_limit else None
    asked = Asked(nodes=question.most_nodes, time_s=limit_s)
    try:
        return fit(plan, candidates, have=context.here.words(), asked=asked, now=context.now)
    except InputError as error:
        if error.field != _NO_CHECKPOINT:
            raise
    return _best_in_time(plan, candidates, asked, context)


def _best_in_time(
    plan: TrainingPlan, candidates: Sequence[Pool], asked: Asked, context: _Context
) -> Fitted | NoPlan:
    """The cheapest size that ends within the time limit of its partition."""
    refused: list[NoPlan] = []
    sized: list[Fitted] = []
    for limit_s in sorted({_limit_s(pool, asked) for pool in candidates}, reverse=True):
        alike = [pool for pool in candidates if _limit_s(pool, asked) == limit_s]
        short = _within(plan, limit_s, context.now)
        one = fit(short, alike, have=context.here.words(), asked=asked, now=context.now)
        if isinstance(one, Fitted):
            sized.append(one)
        else:
            refused.append(one)
    return min(sized, key=_price) if sized else refused[0]


def _price(fitted: Fitted) -> tuple[bool, float, int]:
    """Order of preference: sizes that can start now, then the cheaper, then the smaller."""
    option = fitted.option
    return fitted.waits, math.inf if option.cost_usd is None else option.cost_usd, option.gpus


def _limit_s(pool: Pool, asked: Asked) -> float:
    return min(pool.max_time_s or math.inf, asked.time_s or math.inf)


def _within(plan: TrainingPlan, limit_s: float, now: dt.datetime) -> TrainingPlan:
    """The plan with a deadline no later than a time limit allows."""
    if math.isinf(limit_s):
        return plan
    most_s = max(_SHORTEST_S, finish_limit_s(limit_s))
    stated_s = sizing.deadline_s(plan, now=now)
    if stated_s is not None and stated_s <= most_s:
        return plan
    confidence = plan.spec.deadline.confidence if plan.spec.deadline else 0.9
    deadline = Deadline(finish_within=f"{int(most_s)}s", confidence=confidence)
    return plan.model_copy(update={"spec": plan.spec.model_copy(update={"deadline": deadline})})


def _sized(fitted: Fitted, question: Question) -> Answer:
    """The fields of a size. They never exceed the user's request, and never set tasks per node."""
    nodes = fitted.nodes
    minutes = round(fitted.time_s / 60.0)
    values: dict[str, int | str] = {
        "min_nodes": nodes,
        "max_nodes": nodes,
        "gres": fitted.gres,
        "partition": fitted.pool.partition,
        **_tasks(fitted, question),
        "admin_comment": f"rightsizer/1 nodes={nodes} gpus={fitted.option.layout.gpus} minutes={minutes}",
    }
    if question.tres_per_job:
        values["tres_per_job"] = ""
    if question.time_limit is None:
        values["time_limit"] = minutes
    return Answer(
        verdict=Verdict.OK,
        say=f"{fitted.words}{_changes(values, question)}",
        fields=values,
        variables=_variables(fitted),
    )


def _tasks(fitted: Fitted, question: Question) -> dict[str, int]:
    """Tasks and cores: one task a node, unless the user requested others."""
    nodes, each = fitted.nodes, question.ntasks_per_node
    cpus = question.cpus_per_task
    if each:
        tasks = nodes * each
        return ({"num_tasks": tasks} if question.num_tasks else {}) | {"min_cpus": tasks * (cpus or 1)}
    if question.num_tasks:
        return {"min_cpus": max(nodes, question.num_tasks * (cpus or 1))}
    cores = cpus or fitted.cores
    return {"num_tasks": nodes, "cpus_per_task": cores, "min_cpus": nodes * cores}


def _variables(fitted: Fitted) -> dict[str, str]:
    """The RIGHTSIZER_* variables for the batch script."""
    option = fitted.option
    layout = option.layout
    return {
        "RIGHTSIZER_NODES": str(fitted.nodes),
        "RIGHTSIZER_GPUS": str(layout.gpus),
        "RIGHTSIZER_GPUS_PER_NODE": str(fitted.node_gpus),
        "RIGHTSIZER_DP": str(layout.dp),
        "RIGHTSIZER_TP": str(layout.tp),
        "RIGHTSIZER_PP": str(layout.pp),
        "RIGHTSIZER_CP": str(layout.cp),
        "RIGHTSIZER_EP": str(layout.ep),
        "RIGHTSIZER_MICRO_BATCH": str(layout.micro_batch),
        "RIGHTSIZER_GLOBAL_BATCH_SEQUENCES": str(option.global_batch_sequences),
        "RIGHTSIZER_SEQUENCE_LENGTH": str(fitted.answer.request.workload.sequence_tokens),
    }


def _changes(values: Mapping[str, int | str], question: Question) -> str:
    """The user's options that were lowered."""
    parts = []
    nodes, (_, each), (_, total) = (
        question.max_nodes,
        gres_gpus(question.gres),
        gres_gpus(question.tres_per_job),
    )
    if nodes and nodes != values["max_nodes"]:
        parts.append(f"--nodes {nodes} to {values['max_nodes']}")
    each, now_each = gres_gpus(question.gres)[1], gres_gpus(str(values["gres"]))[1]
    if each and each != now_each:
        parts.append(f"GPUs of a node {each} to {now_each}")
    if total and total != int(values["max_nodes"]) * now_each:
        parts.append(f"--gpus {total} to {int(values['max_nodes']) * now_each}")
    if "," in question.partition:
        parts.append(f"--partition {question.partition} to {values['partition']}")
    return f" (changed: {', '.join(parts)})" if parts else ""


def _bounds_in_words(question: Question, allowed: Sequence[Pool], everywhere: Sequence[Pool]) -> list[str]:
    """The bounds by the user's options and by the partitions (`everywhere`), shown with a refusal."""
    parts = []
    if question.most_nodes:
        parts.append(f"{question.most_nodes} nodes")
    if question.time_limit:
        parts.append(f"a time limit of {format_duration(60.0 * question.time_limit)}")
    elif (limits := _times(everywhere)) and limits == _times(allowed):
        parts.append(f"the partition's time limit of {format_duration(max(limits))}")
    return parts


def _times(candidates: Sequence[Pool]) -> set[float]:
    return {pool.max_time_s for pool in candidates if pool.max_time_s}


def _bracketed(parts: Sequence[str]) -> str:
    return f" [within {' and '.join(parts)}]" if parts else ""


def _message(error: RightsizerError) -> str:
    """An error in one line, without an empty value."""
    if isinstance(error, InputError) and error.value in (None, ""):
        return f"{error.field}: {error.remedy}"
    return str(error)
