"""Goodput: the share of wall time that trains, and the losses to failures, checkpoints and restarts.

Notation: M mean time to failure of the job, delta the time a checkpoint blocks, R restart, tau time between
checkpoints. Failures are exponential; the rate is per node of 8 GPUs and scales with the GPUs used.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from rightsizer_engine import packaged
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.errors import UnknownNameError
from rightsizer_engine.values import immutable

_DAY_S = 86400.0
_GPUS_PER_RATED_NODE = 8
_SHORTEST_INTERVAL_S = 60.0
_STACKS_OF = 2024.0  # the year that `assumed_stack_ln` is of


@immutable
class Reliability:
    """The rate of nodes' failures and the cost of one.

    The default rate is Meta's RSC-1 (arXiv:2410.21680): 6.5 failures per 1000 node-days of 8 GPUs, the rate
    its own projections use. `restart_s` is detection, rescheduling, start and first step, without loading
    the checkpoint: 10 minutes, as published where something watches the job (MegaScale < 10 min to detect,
    SKT median 11 min between retries). `start_s` is the part of it that every run pays once: start-up and
    first step, the half of it (a guess). Checkpoints go at `checkpoint_bytes_per_s_per_node` (BLOOM-176B:
    57 GB/s from 48 nodes), at most `checkpoint_bytes_per_s` for all (a guess: Llama 3 had 2 TB/s);
    the write blocks training.
    """

    name: str = "default"
    failures_per_1000_node_days: float = 6.5
    restart_s: float = 600.0
    start_s: float = 300.0
    repair_s: float = 3 * _DAY_S
    checkpoint_bytes_per_s_per_node: float = 1.2e9
    checkpoint_bytes_per_s: float = 1e12
    source: str = "arXiv:2410.21680 (RSC-1)"


@immutable
class Goodput:
    """Fractions of wall time; `productive + checkpoint + lost_work + restart == 1`. Shapes broadcast."""

    productive: Array
    checkpoint: Array
    lost_work: Array
    restart: Array
    interval_s: Array
    mean_time_to_failure_s: Array


@immutable
class WholeRun:
    """Losses of a pretraining run beyond failures and checkpoints, as shares of its wall time.

    `unplanned` is downtime; `stragglers` and `slower_stack` are slower steps. `sigma_ln` is the deviation of
    ln(hours) on top of the step time's; a measurement of the rate removes it.
    `weight` (0 to 1) grows with the size of the run. Shapes broadcast.
    """

    unplanned: Array
    stragglers: Array
    slower_stack: Array
    sigma_ln: Array
    weight: Array

    @property
    def lost(self) -> Array:
        """All losses together."""
        return np.asarray(self.unplanned + self.stragglers + self.slower_stack)


@cache
def reliability(name: str = "default") -> Reliability:
    """The preset of that name in data/goodput.json."""
    presets: Mapping[str, Mapping[str, object]] = json.loads(packaged.text("goodput.json"))
    if name not in presets:
        raise UnknownNameError("reliability", value=name, candidates=sorted(presets))
    preset = presets[name]
    rate = preset["failures_per_1000_node_days"]
    if not isinstance(rate, int | float):
        raise TypeError(f"data/goodput.json: {name}: the rate must be a number")
    return Reliability(name=name, failures_per_1000_node_days=float(rate), source=str(preset["source"]))


def checkpoint_interval_s(blocking_s: Array, mean_time_to_failure_s: Array) -> Array:
    """Daly's optimum (2006): sqrt(2 delta M) [1 + sqrt(x)/3 + x/9] - delta, x = delta/2M; M if x >= 1."""
    x = blocking_s / (2.0 * mean_time_to_failure_s)
    young = np.sqrt(2.0 * blocking_s * mean_time_to_failure_s)
    daly = young * (1.0 + np.sqrt(x) / 3.0 + x / 9.0) - blocking_s
    return np.maximum(np.where(x < 1.0, daly, mean_time_to_failure_s), _SHORTEST_INTERVAL_S)


def estimate(gpus: Array, checkpoint_bytes: Array, reliability: Reliability) -> Goodput:
    """Goodput of jobs on `gpus` whose checkpoints have `checkpoint_bytes`, at Daly's interval.

    Expected wall time per productive second: M e^(R/M) (e^((tau+delta)/M) - 1) / tau (Daly). The loss is
    split in the first-order proportions delta/tau : (tau+delta)/2M : R/M.
    """
    nodes = np.asarray(gpus, dtype=float) / _GPUS_PER_RATED_NODE
    rate = np.maximum(nodes * reliability.failures_per_1000_node_days / 1000.0 / _DAY_S, 1e-15)
    mean = 1.0 / rate
    blocking = np.maximum(_checkpoint_write_s(gpus, checkpoint_bytes, reliability), 1e-3)
    restart = reliability.restart_s + blocking
    interval = checkpoint_interval_s(blocking, mean)
    wall = mean * np.exp(restart / mean) * np.expm1((interval + blocking) / mean) / interval
    parts = (blocking / interval, (interval + blocking) / (2.0 * mean), restart / mean)
    scale = (1.0 - 1.0 / wall) / (parts[0] + parts[1] + parts[2])
    return Goodput(
        productive=1.0 / wall,
        checkpoint=parts[0] * scale,
        lost_work=parts[1] * scale,
        restart=parts[2] * scale,
        interval_s=interval,
        mean_time_to_failure_s=mean,
    )


def _checkpoint_write_s(gpus: Array, checkpoint_bytes: Array | float, reliability: Reliability) -> Array:
    """Seconds that the nodes of `gpus` write a checkpoint for."""
    together = writers(gpus) * reliability.checkpoint_bytes_per_s_per_node
    return np.asarray(checkpoint_bytes / np.minimum(together, reliability.checkpoint_bytes_per_s))


def once_s(
    gpus: Array, *, read_bytes: float, checkpoint_bytes: Array | float, reliability: Reliability
) -> Array:
    """Seconds around the steps of a run: start-up and first step, reading weights, the last checkpoint.

    Each node reads all `read_bytes` (as from_pretrained does), at the rate at which it writes.
    """
    read_s = read_bytes / reliability.checkpoint_bytes_per_s_per_node
    return reliability.start_s + read_s + _checkpoint_write_s(gpus, checkpoint_bytes, reliability)


def writers(gpus: Array | int) -> Array:
    """Nodes of 8 GPUs that write a checkpoint together."""
    return np.ceil(np.asarray(gpus, dtype=float) / _GPUS_PER_RATED_NODE)


def measured(
    reliability: Reliability, *, start_s: Sequence[float], write_bytes_per_s: Sequence[float]
) -> Reliability:
    """The reliability with the medians of what runs measured; zeros were not measured.

    A start-up replaces its part of `restart_s`; what is left is detection and rescheduling.
    """
    starts = [value for value in start_s if value > 0]
    rates = [value for value in write_bytes_per_s if value > 0]
    if starts:
        start = statistics.median(starts)
        restart_s = reliability.restart_s - min(reliability.start_s, reliability.restart_s) + start
        reliability = replace(reliability, restart_s=restart_s, start_s=start)
    if rates:
        reliability = replace(reliability, checkpoint_bytes_per_s_per_node=statistics.median(rates))
    return reliability


def whole_run(
    gpus: Array, planned_s: Array, productive: Array, *, assumed: bool = False, slower_stack_ln: float = 0.0
) -> WholeRun:
    """Losses of a pretraining run that no formula covers, and the scatter of its hours (data/whole_run.json).

    Large runs report the effective share of their time, failures included. The part of the loss that
    `productive` does not explain is unplanned. It grows with the node-days W of the run as W / (W + settled).
    All other nodes, a share of 1 - 1 / nodes, wait for stragglers. `assumed`: the user
    named no framework, and `slower_stack_ln` is added to ln(step time) over that of the best stack's layout.
    """
    constants = _whole_run()
    nodes = gpus / _GPUS_PER_RATED_NODE
    work = nodes * planned_s / _DAY_S
    weight = work / (work + constants["settled_node_days"])
    unplanned = np.maximum(0.0, constants["not_effective"] * weight - (1.0 - productive))
    stragglers = np.asarray(constants["stragglers"] * np.maximum(0.0, 1.0 - 1.0 / nodes))
    slower = -math.expm1(-slower_stack_ln)
    return WholeRun(
        unplanned=unplanned,
        stragglers=stragglers,
        slower_stack=np.asarray(slower * (1.0 - unplanned - stragglers)),
        sigma_ln=np.full(np.shape(weight), constants["sigma_ln_assumed" if assumed else "sigma_ln"]),
        weight=np.asarray(weight),
    )


def stays_ln() -> float:
    """The deviation of ln(finish) that no measurement of the rate removes: failures and downtime."""
    return _whole_run()["stays_ln"]


def slower_stack_ln(library_year: float) -> float:
    """The logarithm of a step time of that year's stacks over the assumed one's on its best layout.

    People's stacks catch up: the lead halves every `assumed_stack_halving` years. Year 0: that of the data.
    """
    constants = _whole_run()
    age = (library_year or constants["today"]) - _STACKS_OF
    return constants["assumed_stack_ln"] * math.exp2(-age / constants["assumed_stack_halving"])


@cache
def _whole_run() -> Mapping[str, float]:
    document = json.loads(packaged.text("whole_run.json"))
    year, month, _ = document.pop("date").split("-")
    constants = {name: float(entry["value"]) for name, entry in document.items()}
    return {**constants, "today": int(year) + (int(month) - 1) / 12}


def spare_nodes(nodes: int, gpus_per_node: int, reliability: Reliability, *, confidence: float = 0.9) -> int:
    """The fewest spares such that, with `confidence`, no more nodes are in repair at once (Poisson)."""
    rate = reliability.failures_per_1000_node_days / 1000.0 / _DAY_S * gpus_per_node / _GPUS_PER_RATED_NODE
    mean = nodes * rate * reliability.repair_s
    spares, term = 0, math.exp(-mean)
    total = term
    while total < confidence and spares < nodes:
        spares += 1
        term *= mean / spares
        total += term
    return spares
