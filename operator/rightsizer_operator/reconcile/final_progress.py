"""The last numbers of a complete training, as its workers left them in their termination messages. Pure."""

import json
import math
from typing import Any

from rightsizer_api.state import State
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.snapshot import ReportedProgress

_MOST_TOKENS, _MOST_STEPS = 1e18, 1e15


def final_progress(state: ReconcileState) -> ReportedProgress | None:
    """The progress that a worker which ended well has left; None where none of them reports any."""
    job = state.job
    if job is None or job.finished != State.COMPLETE:
        return None
    pods = (p for p in state.snapshot.pods if p.attempt == job.attempt and p.exit_code == 0)
    return next((progress for pod in pods if (progress := _parsed(pod.message))), None)


def _parsed(text: str) -> ReportedProgress | None:
    """A tenant's process writes this text: it counts only if it is finite and within bounds."""
    try:
        said = json.loads(text)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    tokens, step = _bounded(said.get("tokens"), _MOST_TOKENS), _bounded(said.get("step"), _MOST_STEPS)
    if tokens is None or step is None:
        return None
    loss = _bounded(said.get("loss"), math.inf)
    return ReportedProgress(tokens=tokens, step=int(step), tokens_per_s=0.0, loss=loss)


def _bounded(value: Any, most: float) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) and 0 <= value <= most else None
