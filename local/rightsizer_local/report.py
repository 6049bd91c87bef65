"""A run's report.json and status.yaml. Pure except for `write`."""

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rightsizer_api import reporting, sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.report import PlanReport
from rightsizer_api.state import ConditionType, State
from rightsizer_api.status import (
    Attempt,
    Condition,
    ConditionStatus,
    Observed,
    Recommendation,
    Resize,
    Status,
)
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.observation import Observation, to_document
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.resize.types import Decision
from rightsizer_engine.search.size import size
from rightsizer_engine.values import immutable
from rightsizer_launch.running.run_totals import RunTotals, pace
from rightsizer_launch.worker.progress import replace_text, write_json
from rightsizer_local.supervisor import Ending

_LONGEST, _MOST_EVIDENCE = 1024, 16  # what the status schema holds

ELSEWHERE = "H100-SXM5-80GB"
"""The GPU type that a local run is compared with."""


@immutable
class RunOutcome:
    """The inputs of a report; `attempts` as in run.json, `decision` the last one that was not KEEP."""

    plan: TrainingPlan
    sizing: PlanReport
    machine: str
    ending: Ending
    reason: str
    totals: RunTotals
    attempts: Sequence[Mapping[str, Any]]
    tokens_per_step: float
    target_tokens: float
    deadline: dt.datetime | None
    now: dt.datetime
    observations: Sequence[Observation] = ()
    decision: Decision | None = None
    decided_s: float = 0.0

    @property
    def failures(self) -> int:
        """Failures over all attempts."""
        return sum(int(attempt["failures"]) for attempt in self.attempts)


def report(outcome: RunOutcome) -> dict[str, Any]:
    """The JSON document: predicted and measured side by side, attempt by attempt."""
    totals = outcome.totals
    losses = [loss for _, loss in totals.curve]
    return {
        "name": outcome.plan.metadata.name,
        "state": str(outcome.ending),
        "reason": outcome.reason,
        "machine": outcome.machine,
        "step": totals.step,
        "tokens": totals.tokens,
        "targetTokens": outcome.target_tokens,
        "attempts": [_attempt(outcome, attempt) for attempt in outcome.attempts],
        "restarts": outcome.failures,
        "lostSteps": totals.lost_steps,
        "secondsByPhase": {name: round(seconds, 3) for name, seconds in totals.phases_s.items()},
        "loss": {
            "first": totals.first_loss,
            "last": totals.loss,
            "best": min(losses, default=None),
            "curve": [[step, round(loss, 5)] for step, loss in totals.curve],
        },
        "checkpoint": {"step": totals.saved_step, "path": totals.saved_path},
        "resizes": [
            resize.model_dump(mode="json", by_alias=True, exclude_none=True)
            for resize in _resizes(outcome.attempts)
        ],
        "sizing": outcome.sizing.model_dump(mode="json", by_alias=True, exclude_none=True),
        "elsewhere": elsewhere(outcome.plan),
        "observations": [to_document(one) for one in outcome.observations],
    }


def elsewhere(plan: TrainingPlan, gpu: str = ELSEWHERE) -> dict[str, Any]:
    """The plan sized for another GPU, as a PlanReport; or the error."""
    try:
        unbounded = plan.model_copy(update={"spec": plan.spec.model_copy(update={"resources": _free(plan)})})
        response = size(sizing.resolve(unbounded).request(clusters=(lookup.cluster(gpu),)))
    except RightsizerError as error:
        return {"gpuType": gpu, "error": str(error)}
    return reporting.report(response).model_dump(mode="json", by_alias=True, exclude_none=True)


def _free(plan: TrainingPlan) -> Any:
    """The plan's resources without this machine's numbers."""
    return plan.spec.resources.model_copy(update={"gpus": None, "min_gpus": 1, "max_gpus": None})


def _attempt(outcome: RunOutcome, attempt: Mapping[str, Any]) -> dict[str, Any]:
    measured = pace(outcome.totals.steps, int(attempt["number"]), tokens_per_step=outcome.tokens_per_step)
    predicted = attempt["predicted"]
    row = dict(attempt) | {"measured": None, "measuredOverPredicted": None}
    if measured is not None:
        row["measured"] = {
            "tokensPerSecond": round(measured.tokens_per_s, 3),
            "stepSeconds": round(measured.step_s, 6),
            "workers": measured.workers,
            "steps": measured.steps,
        }
        row["measuredOverPredicted"] = round(measured.tokens_per_s / predicted["tokensPerSecond"], 4)
    return row


def status(outcome: RunOutcome) -> Status:
    """The plan's status, as the operator would write it."""
    last = outcome.attempts[-1]
    measured = pace(outcome.totals.steps, int(last["number"]), tokens_per_step=outcome.tokens_per_step)
    totals = outcome.totals
    state, true = _CONDITIONS[outcome.ending]
    condition = Condition(
        type=ConditionType.FAILED if outcome.ending is Ending.FAILED else ConditionType.READY,
        status=ConditionStatus.TRUE if true else ConditionStatus.FALSE,
        reason=state,
        message=outcome.reason
        or f"step {totals.step}, {totals.tokens:.0f} of {outcome.target_tokens:.0f} tokens",
        last_transition_time=outcome.now,
    )
    return Status(
        conditions=(condition,),
        deadline=outcome.deadline,
        sizing=outcome.sizing,
        attempt=Attempt(
            number=int(last["number"]),
            gpus=int(last["workers"]),
            layout=outcome.sizing.layout,
            started_at=_moment(last["startedAt"]),
        ),
        observed=Observed(
            gpus=totals.workers,
            step=totals.step,
            tokens=totals.tokens,
            progress=min(1.0, totals.tokens / max(outcome.target_tokens, 1.0)),
            tokens_per_second=measured.tokens_per_s if measured else None,
            step_seconds=measured.step_s if measured else None,
            measured_over_predicted=measured.step_s / last["predicted"]["stepSeconds"] if measured else None,
            loss=totals.loss,
            restarts=outcome.failures,
            lost_steps=totals.lost_steps,
            last_checkpoint_time=_moment(totals.saved_time) if totals.saved_time else None,
            last_checkpoint_step=totals.saved_step or None,
            updated_at=outcome.now,
        ),
        recommendation=_recommendation(outcome),
        resizes=_resizes(outcome.attempts),
    )


def _recommendation(outcome: RunOutcome) -> Recommendation | None:
    """The resize policy's last recommendation."""
    decision = outcome.decision
    if decision is None:
        return None
    return Recommendation(
        action=decision.action.capitalize(),
        gpus=decision.gpus,
        reason=decision.reason[:_LONGEST],
        evidence=tuple(line[:_LONGEST] for line in decision.evidence[:_MOST_EVIDENCE]),
        price_gpu_hours=decision.price_gpu_hours,
        saves_gpu_hours=decision.saves_gpu_hours,
        at=_moment(outcome.decided_s),
    )


_CONDITIONS = {
    Ending.DONE: (State.COMPLETE, True),
    Ending.STOPPED: ("Stopped", False),
    Ending.FAILED: ("GaveUp", True),
}


def _resizes(attempts: Sequence[Mapping[str, Any]]) -> tuple[Resize, ...]:
    changes = []
    for before, after in itertools.pairwise(attempts):
        if before["workers"] != after["workers"]:
            changes.append(
                Resize(
                    at=_moment(after["startedAt"]),
                    from_gpus=before["workers"],
                    to_gpus=after["workers"],
                    from_layout=before["layout"],
                    to_layout=after["layout"],
                    reason=(after.get("reason") or "requested on the command line")[:_LONGEST],
                )
            )
    return tuple(changes[-50:])


def _moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(round(seconds), dt.UTC)


def write(directory: Path, outcome: RunOutcome) -> dict[str, Any]:
    """Write report.json and status.yaml; the report."""
    document = report(outcome)
    write_json(directory / "report.json", document)
    status_document = status(outcome).model_dump(mode="json", by_alias=True, exclude_none=True)
    replace_text(directory / "status.yaml", yaml.safe_dump({"status": status_document}, sort_keys=False))
    return document
