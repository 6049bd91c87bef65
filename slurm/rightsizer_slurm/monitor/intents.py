"""Which resize follows from a decision, and which resize led to a size that trained no step. Pure."""

from collections.abc import Sequence

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.resize.types import Action
from rightsizer_launch.worker_spec import grace_s
from rightsizer_slurm.monitor.decide import ReportRow
from rightsizer_slurm.monitor.inspection import InspectedJob
from rightsizer_slurm.monitor.intent_log import Intent, IntentStage, Kind
from rightsizer_slurm.monitor.settings import ActionLevel
from rightsizer_slurm.monitor.size_records import SizeRecord

_SAVE_SLACK_S = 120.0
"""Added to a job's grace period for torchrun's stop and Slurm's requeue."""


def intent_for(row: ReportRow, level: ActionLevel) -> Intent | None:
    """The resize for a decision, within the action level; None if there is none."""
    decision, monitored = row.decision, row.monitored
    if (
        not decision.act
        or monitored.run is None
        or not monitored.run.elastic
        or not decision.in_place
        or not row.job.running
    ):
        return None
    if decision.action not in {Action.GROW, Action.SHRINK}:
        return None
    nodes = decision.gpus // monitored.run.node_gpus
    kind = Kind.SHRINK if decision.action is Action.SHRINK else Kind.REQUEUE
    if nodes == row.job.nodes or not level.allows(ActionLevel(str(kind))):
        return None
    if kind is Kind.REQUEUE and (not row.job.requeue or row.reading.checkpoint_age_s is None):
        return None
    return plan_intent(monitored, nodes=nodes, kind=kind, reason=decision.reason)


def plan_intent(monitored: InspectedJob, *, nodes: int, kind: Kind, reason: str) -> Intent:
    """An intent for the job in its present state."""
    assert monitored.run is not None  # callers have checked it
    return Intent(
        job_id=monitored.job.job_id,
        kind=kind,
        from_nodes=monitored.job.nodes,
        to_nodes=nodes,
        node_cores=monitored.run.node_cores,
        restarts=monitored.job.restarts,
        stop_timeout_s=grace_s(monitored.plan) + _SAVE_SLACK_S,
        reason=one_line(reason),
    )


def failed_by(record: SizeRecord, intents: Sequence[Intent]) -> tuple[Intent, ...]:
    """The closed resize that led to a size that completed no step: DONE means only that the job started."""
    resizes = [intent for intent in intents if intent.kind is not Kind.SUSPEND]
    causes = [i for i in resizes if i.to_nodes == record.nodes and i.restarts < record.restart]
    return tuple(intent for intent in causes[-1:] if intent.stage is IntentStage.DONE)
