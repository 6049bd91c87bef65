"""The metrics of one training as its rank 0 serves them, parsed and bounded. Pure.

A tenant's process writes this text. Whatever it holds, the result is finite and within bounds, or None. Only
our own lines are parsed, and few of them, because parsing takes long.
"""

import datetime as dt
import math
import re

from prometheus_client.parser import text_string_to_metric_families

from rightsizer_engine.values import immutable
from rightsizer_launch.worker import metrics as agent
from rightsizer_operator.values.snapshot import ReportedProgress

MOST_BYTES = 262_144
"""Of the answers of one plan's pods in one scrape."""
_MOST_OWN_BYTES = 32_768
_OWN = re.compile(rb"^(?:%s)[{ \t].*" % "|".join(agent.NAMES).encode(), re.MULTILINE)
_MOST_TOKENS = 1e18
_MOST_TOKENS_PER_S = 1e12
_MOST_STEPS = 1e15
_MOST_WORKERS = 1e6
_MOST_SECONDS = 1e10
_LATEST_UNIX_S = 4_102_444_800.0  # the year 2100


@immutable
class MetricsTooLarge:
    """Workers that send more than is read; `message` is for the user."""

    message: str = f"its workers send more than {MOST_BYTES // 1024} KiB of metrics: none is read"


def progress_of(body: bytes) -> ReportedProgress | MetricsTooLarge | None:
    """The training's progress, from a response with any other metrics besides ours."""
    own = b"\n".join(_OWN.findall(body))
    if len(own) > _MOST_OWN_BYTES:
        sent = f"its workers send {len(own) // 1024} KiB of rightsizer_train metrics"
        return MetricsTooLarge(message=f"{sent}: at most {_MOST_OWN_BYTES // 1024} KiB are read")
    return parse_agent_metrics(own.decode(errors="replace"))


def parse_agent_metrics(text: str) -> ReportedProgress | None:
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
    return ReportedProgress(
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
