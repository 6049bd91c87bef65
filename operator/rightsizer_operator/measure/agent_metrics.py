"""The metrics of one training as its rank 0 serves them, parsed and bounded. Pure.

A tenant's process writes this text. Whatever it holds, the result is finite and within bounds, or None.
"""

import datetime as dt
import math

from prometheus_client.parser import text_string_to_metric_families

from rightsizer_launch.worker import metrics as agent
from rightsizer_operator.values.snapshot import Progress

__all__ = ["parse_agent_metrics"]

_MOST_TOKENS = 1e18
_MOST_TOKENS_PER_S = 1e12
_MOST_STEPS = 1e15
_MOST_WORKERS = 1e6
_MOST_SECONDS = 1e10
_LATEST_UNIX_S = 4_102_444_800.0  # the year 2100


def parse_agent_metrics(text: str) -> Progress | None:
    """The training's progress; None if the text is malformed or lacks the position or the rate."""
    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (ValueError, KeyError, IndexError):  # what the parser raises on malformed text
        return None
    values = {sample.name: sample.value for sample in samples}

    def bounded(name: str, most: float) -> float | None:
        value = values.get(name)
        return value if value is not None and math.isfinite(value) and 0 <= value <= most else None

    tokens = bounded(agent.POSITION, _MOST_TOKENS)
    tokens_per_s = bounded(agent.TOKENS_PER_SECOND, _MOST_TOKENS_PER_S)
    if tokens is None or tokens_per_s is None:
        return None
    phases = [s.labels.get("phase", "") for s in samples if s.name == agent.PHASE and s.value == 1]
    saved_unix_s = bounded(agent.CHECKPOINT_TIMESTAMP, _LATEST_UNIX_S)
    loss = values.get(agent.LOSS)
    return Progress(
        tokens=tokens,
        tokens_per_s=tokens_per_s,
        step=int(bounded(agent.STEP, _MOST_STEPS) or 0),
        restarts=int(bounded(agent.RESTARTS, _MOST_STEPS) or 0),
        loss=loss if loss is not None and math.isfinite(loss) else None,
        checkpoint_at=dt.datetime.fromtimestamp(saved_unix_s, dt.UTC) if saved_unix_s else None,
        workers=int(bounded(agent.WORKERS, _MOST_WORKERS) or 0) or None,
        phase=next((phase for phase in phases if phase in agent.PHASES), ""),
        checkpoint_s=bounded(agent.CHECKPOINT_SECONDS + "_total", _MOST_SECONDS),
        data_wait_s=bounded(agent.DATA_WAIT_SECONDS + "_total", _MOST_SECONDS),
    )
