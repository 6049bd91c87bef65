"""Convert priced rows to Options, with time and memory by cause."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.estimate import cost, goodput
from rightsizer_engine.estimate.memory.device_memory import Memory, Verdict, verdict
from rightsizer_engine.estimate.prediction import Prediction, fit, predict
from rightsizer_engine.estimate.step.step_time import StepTime
from rightsizer_engine.estimate.uncertainty import Z_80
from rightsizer_engine.search.pricing.context import SearchContext, families_context
from rightsizer_engine.search.pricing.layout_space import Families
from rightsizer_engine.search.pricing.rows import Rows, price
from rightsizer_engine.search.types import Option, Request

_BEYOND = ("unplanned", "stragglers", "slower_stack")
"""Losses of whole runs beyond failures and checkpoints."""


def layout_of(columns: Columns, index: int) -> Layout:
    """The layout in row `index`."""
    plain = {name: np.atleast_1d(getattr(columns, name)) for name in Layout.__dataclass_fields__}
    value: dict[str, Any] = {name: int(column[min(index, column.size - 1)]) for name, column in plain.items()}
    value |= {
        "sequence_parallel": bool(value["sequence_parallel"]),
        "sharding": Sharding(value["sharding"]),
        "recompute": Recompute(value["recompute"]),
        "offload": Offload(value["offload"]),
    }
    return Layout(**value)


def price_layout(request: Request, layout: Layout) -> tuple[Option, Verdict]:
    """Price one layout on the request's first cluster without a search; whether it fits memory."""
    columns, single_row = Columns.stack([layout]), np.zeros(1, dtype=np.int64)
    axes = {name: getattr(columns, name) for name in columns.names()}
    family = Families(axes=axes, unit=columns.tp * columns.pp * columns.cp, sibling=single_row)
    context = families_context(request, request.clusters[0], family)
    memory_fit = fit(context.cases(columns), request.calibration)
    fits = verdict(memory_fit.memory, context.cluster.gpu.memory_bytes, float(np.max(memory_fit.sigma)))
    row = price(context, single_row, np.array([layout.gpus]), columns)
    return option(context, row), fits


def option(context: SearchContext, rows: Rows, index: int = 0) -> Option:
    """Row `index` as an Option."""
    return options([(context, rows.row(index))])[0]


def options(rows_by_context: Sequence[tuple[SearchContext, Rows]]) -> tuple[Option, ...]:
    """Single rows of one request, on any clusters, as Options. One prediction covers all of them."""
    first = rows_by_context[0][0]
    layouts = [layout_of(rows.layout, 0) for _, rows in rows_by_context]
    cases = replace(
        first.nouns,
        cluster=Columns.stack(context.cluster for context, _ in rows_by_context),
        gpu=Columns.stack(context.cluster.gpu for context, _ in rows_by_context),
        layout=Columns.stack(layouts),
    )
    prediction = predict(cases, first.request.calibration)
    away = _offloaded_bytes(cases, layouts)
    return tuple(
        replace(_option(*one, layouts[i], prediction, i), host_bytes_per_node=away[i])
        for i, one in enumerate(rows_by_context)
    )


def _offloaded_bytes(cases: Cases, layouts: Sequence[Layout]) -> list[float]:
    """Bytes of states that each layout keeps in the memory of one host: what they would take on its GPUs."""
    held = [replace(layout, offload=layout.offload & Offload.ACTIVATIONS) for layout in layouts]
    if held == list(layouts):
        return [0.0] * len(layouts)
    here, there = (fit(replace(cases, layout=Columns.stack(some)), None).memory for some in (layouts, held))
    away = (there.weights_bytes + there.optimizer_bytes) - (here.weights_bytes + here.optimizer_bytes)
    together = np.minimum([layout.gpus for layout in layouts], cases.cluster.gpus_per_node)
    return [float(x) for x in np.broadcast_to(np.maximum(away, 0.0) * together, (len(layouts),))]


def _option(context: SearchContext, rows: Rows, layout: Layout, prediction: Prediction, index: int) -> Option:
    """One row as an Option; `index` is its row in the prediction."""
    request, cluster = context.request, context.cluster
    goodput_estimate = goodput.estimate(
        np.asarray(layout.gpus), np.asarray(context.checkpoint_bytes), context.reliability
    )
    finish_s, sigma, finish_sigma = (float(c[0]) for c in (rows.finish_s, rows.sigma, rows.finish_sigma))
    beyond = {cause: float(getattr(rows, cause)[0]) for cause in _BEYOND}
    start_up = float(rows.once_s[0]) / finish_s
    spares = request.spare_nodes or 0
    held = layout.gpus + spares * cluster.gpus_per_node
    usd = float(rows.cost_usd[0])
    step_s = _at(prediction.step_s, index)
    return Option(
        cluster=cluster,
        layout=layout,
        gpus=layout.gpus,
        nodes=-(-layout.gpus // max(1, cluster.gpus_per_node)),
        spare_nodes=spares,
        global_batch_sequences=layout.dp * layout.micro_batch * layout.micro_batches,
        step_s=step_s,
        step_by_cause_s=_step_causes(prediction.step_time, step_s, index),
        memory_by_cause_bytes=_causes(prediction.memory, "_bytes", index),
        allocated_bytes=_at(prediction.memory.allocated_bytes, index),
        device_bytes=_at(prediction.memory.device_bytes, index),
        memory_limit_bytes=_at(prediction.memory_limit_bytes, index),
        tokens_per_s=_at(prediction.tokens_per_s, index),
        mfu=_at(prediction.mfu, index),
        sigma=sigma,
        step_correction=_at(prediction.step_correction, index),
        memory_correction=_at(prediction.memory_correction, index),
        goodput=_at(goodput_estimate.productive, 0) * (1.0 - sum(beyond.values())) * (1.0 - start_up),
        lost_by_cause=_lost(goodput_estimate, beyond, start_up),
        checkpoint_interval_s=_at(goodput_estimate.interval_s, 0),
        finish_s=finish_s,
        finish_lo_s=finish_s * float(np.exp(-Z_80 * finish_sigma)),
        finish_hi_s=finish_s * float(np.exp(Z_80 * finish_sigma)),
        finish_at_confidence_s=float(rows.finish_at_confidence_s[0]),
        cost_usd=None if np.isnan(usd) else usd,
        energy_kwh=cost.energy_kwh(held, finish_s, cluster),
    )


def _lost(
    goodput_estimate: goodput.Goodput, beyond: Mapping[str, float], start_up: float
) -> dict[str, float]:
    """Shares of the wall time lost, by cause. With the productive share they sum to 1."""
    productive_share = 1.0 - sum(beyond.values())
    planned = {
        name: _at(getattr(goodput_estimate, name), 0) * productive_share
        for name in ("checkpoint", "lost_work", "restart")
    }
    between = planned | {cause: share for cause, share in beyond.items() if share > 0}
    return {cause: share * (1.0 - start_up) for cause, share in between.items()} | {"start_up": start_up}


def _step_causes(step_time: StepTime, step_s: float, index: int) -> Mapping[str, float]:
    """Step time by cause. The causes sum to the step, so the peak bound is a cause too."""
    causes = _causes(step_time, "_s", index)
    missing = step_s - sum(causes.values())
    return causes | ({"peak_bound": missing} if missing > 1e-6 * step_s else {})


def _causes(estimate: StepTime | Memory, suffix: str, index: int) -> dict[str, float]:
    """The nonzero causes in row `index`, without the unit suffix. They sum to the total."""
    values = {f.name.removesuffix(suffix): _at(getattr(estimate, f.name), index) for f in fields(estimate)}
    return {cause: value for cause, value in values.items() if value > 0}


def _at(column: Array, index: int) -> float:
    """Row `index` of a column; a column of one element is shared by all rows."""
    flat = np.asarray(column).reshape(-1)
    return float(flat[index if flat.size > 1 else 0])
