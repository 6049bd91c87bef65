"""What a run leaves behind: report.json, and the plan's status beside it. Pure, but for the two writers."""

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rightsizer.catalog import lookup
from rightsizer.domain.observation import Observation, to_document
from rightsizer.errors import RightsizerError
from rightsizer.resize.types import Decision
from rightsizer.search.plan import plan as size
from rightsizer.values import immutable
from rightsizer_api import sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.report import PlanReport
from rightsizer_api.status import (
    Attempt,
    Condition,
    ConditionStatus,
    Observed,
    Recommendation,
    Resize,
    Status,
)
from rightsizer_launch.local.supervisor import Ending
from rightsizer_launch.run_totals import RunTotals, pace
from rightsizer_launch.worker.progress import write_json

__all__ = ["Facts", "elsewhere", "report", "status", "write"]

_LONGEST, _MOST_EVIDENCE = 1024, 16  # what the status schema holds

ELSEWHERE = "H100-SXM5-80GB"
"""The GPU that a local run is compared with: what this plan would need there."""


@immutable
class Facts:
    """All that a report is made from; `attempts` as run.json has them, `decision` the last but keep."""

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


def report(facts: Facts) -> dict[str, Any]:
    """The JSON document: predicted and measured side by side, attempt by attempt."""
    totals = facts.totals
    losses = [loss for _, loss in totals.curve]
    return {
        "name": facts.plan.metadata.name,
        "state": str(facts.ending),
        "reason": facts.reason,
        "machine": facts.machine,
        "step": totals.step,
        "tokens": totals.tokens,
        "targetTokens": facts.target_tokens,
        "attempts": [_attempt(facts, attempt) for attempt in facts.attempts],
        "restarts": facts.failures,
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
            for resize in _resizes(facts.attempts)
        ],
        "sizing": facts.sizing.model_dump(mode="json", by_alias=True, exclude_none=True),
        "elsewhere": elsewhere(facts.plan),
        "observations": [to_document(one) for one in facts.observations],
    }


def elsewhere(plan: TrainingPlan, gpu: str = ELSEWHERE) -> dict[str, Any]:
    """What the same plan would need on another GPU, as a PlanReport; or why that cannot be said."""
    try:
        asked = plan.model_copy(update={"spec": plan.spec.model_copy(update={"resources": _free(plan)})})
        answer = size(sizing.resolve(asked).request(clusters=(lookup.cluster(gpu),)))
    except RightsizerError as error:
        return {"gpuType": gpu, "error": str(error)}
    return sizing.report(answer).model_dump(mode="json", by_alias=True, exclude_none=True)


def _free(plan: TrainingPlan) -> Any:
    """The plan's resources without this machine's numbers."""
    return plan.spec.resources.model_copy(update={"gpus": None, "min_gpus": 1, "max_gpus": None})


def _attempt(facts: Facts, attempt: Mapping[str, Any]) -> dict[str, Any]:
    measured = pace(facts.totals.steps, int(attempt["number"]), tokens_per_step=facts.tokens_per_step)
    predicted = attempt["predicted"]
    found = dict(attempt) | {"measured": None, "measuredOverPredicted": None}
    if measured is not None:
        found["measured"] = {
            "tokensPerSecond": round(measured.tokens_per_s, 3),
            "stepSeconds": round(measured.step_s, 6),
            "workers": measured.workers,
            "steps": measured.steps,
        }
        found["measuredOverPredicted"] = round(measured.tokens_per_s / predicted["tokensPerSecond"], 4)
    return found


def status(facts: Facts) -> Status:
    """The plan's status, as the operator would write it."""
    last = facts.attempts[-1]
    measured = pace(facts.totals.steps, int(last["number"]), tokens_per_step=facts.tokens_per_step)
    totals = facts.totals
    state, true = _CONDITIONS[facts.ending]
    condition = Condition(
        type="Ready" if facts.ending is not Ending.FAILED else "Failed",
        status=ConditionStatus.TRUE if true else ConditionStatus.FALSE,
        reason=state,
        message=facts.reason
        or f"step {totals.step}, {totals.tokens:.0f} of {facts.target_tokens:.0f} tokens",
        last_transition_time=facts.now,
    )
    return Status(
        conditions=(condition,),
        deadline=facts.deadline,
        sizing=facts.sizing,
        attempt=Attempt(
            number=int(last["number"]),
            gpus=int(last["workers"]),
            layout=facts.sizing.layout,
            started_at=_moment(last["startedAt"]),
        ),
        observed=Observed(
            gpus=totals.workers,
            step=totals.step,
            tokens=totals.tokens,
            progress=min(1.0, totals.tokens / max(facts.target_tokens, 1.0)),
            tokens_per_second=measured.tokens_per_s if measured else None,
            step_seconds=measured.step_s if measured else None,
            measured_over_predicted=measured.step_s / last["predicted"]["stepSeconds"] if measured else None,
            loss=totals.loss,
            restarts=facts.failures,
            lost_steps=totals.lost_steps,
            last_checkpoint_time=_moment(totals.saved_time) if totals.saved_time else None,
            last_checkpoint_step=totals.saved_step or None,
            updated_at=facts.now,
        ),
        recommendation=_recommendation(facts),
        resizes=_resizes(facts.attempts),
    )


def _recommendation(facts: Facts) -> Recommendation | None:
    """The last thing that the resize policy had to say."""
    found = facts.decision
    if found is None:
        return None
    return Recommendation(
        action=found.action.capitalize(),
        gpus=found.gpus,
        reason=found.reason[:_LONGEST],
        evidence=tuple(line[:_LONGEST] for line in found.evidence[:_MOST_EVIDENCE]),
        price_gpu_hours=found.price_gpu_hours,
        saves_gpu_hours=found.saves_gpu_hours,
        at=_moment(facts.decided_s),
    )


_CONDITIONS = {
    Ending.DONE: ("Complete", True),
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
                    reason=(after.get("reason") or "asked for at the command line")[:_LONGEST],
                )
            )
    return tuple(changes[-50:])


def _moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(round(seconds), dt.UTC)


def write(directory: Path, facts: Facts) -> dict[str, Any]:
    """Write report.json and status.yaml; the report."""
    document = report(facts)
    write_json(directory / "report.json", document)
    found = status(facts).model_dump(mode="json", by_alias=True, exclude_none=True)
    (directory / "status.yaml").write_text(yaml.safe_dump({"status": found}, sort_keys=False))
    return document
