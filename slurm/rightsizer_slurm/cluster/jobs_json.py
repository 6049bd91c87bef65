"""Parse a job of squeue --json, in the format of every release. Pure.

22.05 (data 0.0.38) has plain numbers and one state; from 23.11 on numbers are {set, infinite, number} and
states are lists. A missing field gets its default: every release leaves some out.
"""

from collections.abc import Mapping
from typing import Any

from rightsizer_slurm.cluster.jobs import PENDING, SlurmJob, gres_gpus


def job_of_json(raw: Mapping[str, Any]) -> SlurmJob:
    """One job of squeue --json."""
    states = _states(raw.get("job_state"))
    requested = _tres(raw.get("tres_req_str"))
    pending = states[:1] == (PENDING,)
    # on 22.05 the node count of a pending job can be outdated; its requested TRES is not
    nodes = requested.get("node", 0) if pending else _number(raw.get("node_count"))
    nodes = nodes or _number(raw.get("node_count"))
    kind, gpus = _gpus(raw, nodes, requested if pending else _tres(raw.get("tres_alloc_str")))
    return SlurmJob(
        job_id=_number(raw.get("job_id")),
        name=_text(raw.get("name")),
        user=_text(raw.get("user_name")),
        user_id=_number(raw.get("user_id")),
        account=_text(raw.get("account")),
        states=states,
        reason=_text(raw.get("state_reason")),
        partition=_text(raw.get("partition")),
        nodes=nodes,
        node_list=_text(raw.get("nodes")),
        batch_host=_text(raw.get("batch_host")),
        gpus=gpus,
        gpu_type=kind,
        comment=_text(raw.get("comment")),
        admin_comment=_text(raw.get("admin_comment")),
        submitted_s=float(_number(raw.get("submit_time"))),
        started_s=float(_number(raw.get("start_time"))),
        deadline_s=float(_number(raw.get("deadline"))),
        restarts=_number(raw.get("restart_cnt")),
        requeue=bool(raw.get("requeue")),
        priority=_number(raw.get("priority")),
        special=_special(raw),
        batch=bool(raw.get("batch_flag", True)),
    )


def _states(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, list | tuple):
        return tuple(str(state) for state in raw)
    return (str(raw),) if raw else ()


def _number(raw: Any) -> int:
    return _optional(raw) or 0


def _optional(raw: Any) -> int | None:
    """A number in either format; None if it is unset or infinite."""
    if isinstance(raw, Mapping):
        if not raw.get("set", True) or raw.get("infinite"):
            return None
        raw = raw.get("number")
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    try:
        return int(raw)
    except ValueError:
        return None


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else ""


def _tres(raw: Any) -> dict[str, int]:
    """Counts of a TRES text, cpu=2,node=2,gres/gpu:h100=16, without values that have a unit."""
    pairs = (item.partition("=") for item in _text(raw).split(",") if "=" in item)
    return {name: int(value) for name, _, value in pairs if value.isdigit()}


def _gpus(raw: Mapping[str, Any], nodes: int, tres: Mapping[str, int]) -> tuple[str, int]:
    """Type and number of a job's GPUs on all nodes: allocated, else requested."""
    held = [gres_gpus(str(text)) for text in raw.get("gres_detail") or ()]
    if held:
        return held[0][0], sum(count for _, count in held)
    per_node, per_job = gres_gpus(_text(raw.get("tres_per_node"))), gres_gpus(_text(raw.get("tres_per_job")))
    kind = per_node[0] or per_job[0]
    return kind, tres.get("gres/gpu", 0) or per_job[1] or per_node[1] * max(1, nodes)


def _special(raw: Mapping[str, Any]) -> str:
    if _number(raw.get("array_job_id")):
        return "array"
    return "het" if _number(raw.get("het_job_id")) else ""
