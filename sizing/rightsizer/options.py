"""One priced row as an Option: every figure of it, by cause."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rightsizer import cost, goodput
from rightsizer.columns import Array, Columns
from rightsizer.estimate import predict
from rightsizer.layout import Layout, Offload, Sharding
from rightsizer.outcome import Option, Request
from rightsizer.pricing import Ground, Rows, fit_layouts, ground, price
from rightsizer.space import Families
from rightsizer.workload import Recompute

__all__ = ["given", "layout_of", "option"]

_Z_80 = 1.2815515655446004
"""Half width of the central 80 % of a normal distribution, in standard deviations."""

_TOTALS = frozenset({"total", "allocated", "reserved", "device"})


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


def given(request: Request, layout: Layout) -> tuple[Option, bool]:
    """One layout on the request's first cluster without any search, and whether it fits in memory."""
    some = ground(request, request.clusters[0], Families(axes={}, unit=np.zeros(0, dtype=np.int64)))
    columns = Columns.stack([layout])
    fits, _ = fit_layouts(some, columns, 1)
    row = price(some, np.zeros(1, dtype=np.int64), np.array([layout.gpus]), columns)
    return option(some, row), bool(fits[0])


def option(some: Ground, rows: Rows, index: int = 0) -> Option:
    """Row `index` with its causes."""
    request, cluster = some.request, some.cluster
    layout = layout_of(rows.layout, index)
    prediction = predict(some.cases(Columns.of(layout)))
    good = goodput.estimate(np.asarray(layout.gpus), np.asarray(some.checkpoint_bytes), request.reliability)
    finish_s, sigma = float(rows.finish_s[index]), float(rows.sigma[index])
    spares = request.spare_nodes or 0
    held = layout.gpus + spares * cluster.gpus_per_node
    usd = float(rows.cost_usd[index])
    return Option(
        cluster=cluster,
        layout=layout,
        gpus=layout.gpus,
        nodes=-(-layout.gpus // max(1, cluster.gpus_per_node)),
        spare_nodes=spares,
        global_batch_sequences=layout.dp * layout.micro_batch * layout.micro_batches,
        step_s=_scalar(prediction.step_s),
        step_by_cause_s=_step_causes(prediction.step_time, _scalar(prediction.step_s)),
        memory_by_cause_bytes=_causes(prediction.memory, "_bytes"),
        allocated_bytes=_scalar(prediction.memory.allocated_bytes),
        device_bytes=_scalar(prediction.memory.device_bytes),
        memory_limit_bytes=_scalar(prediction.memory_limit_bytes),
        tokens_per_s=_scalar(prediction.tokens_per_s),
        mfu=_scalar(prediction.mfu),
        sigma=sigma,
        goodput=_scalar(good.productive),
        lost_by_cause={name: _scalar(getattr(good, name)) for name in ("checkpoint", "lost_work", "restart")},
        checkpoint_interval_s=_scalar(good.interval_s),
        finish_s=finish_s,
        finish_lo_s=finish_s * float(np.exp(-_Z_80 * sigma)),
        finish_hi_s=finish_s * float(np.exp(_Z_80 * sigma)),
        finish_at_confidence_s=float(rows.finish_at_confidence_s[index]),
        cost_usd=None if np.isnan(usd) else usd,
        energy_kwh=cost.energy_kwh(held, finish_s, cluster),
    )


def _step_causes(step_time: object, step_s: float) -> Mapping[str, float]:
    """The causes; they sum to the step, so what the peak bound adds is named too."""
    causes = _causes(step_time, "_s")
    missing = step_s - sum(causes.values())
    return causes | ({"peak_bound": missing} if missing > 1e-6 * step_s else {})


def _causes(estimate: object, suffix: str) -> dict[str, float]:
    """The nonzero columns of an estimate that end in `suffix`, totals left out."""
    names = [str(n) for n in getattr(type(estimate), "__dataclass_fields__", ())]
    stems = {n: n.removesuffix(suffix) for n in names if n.endswith(suffix)}
    values = {stem: _scalar(getattr(estimate, n)) for n, stem in stems.items() if stem not in _TOTALS}
    return {stem: value for stem, value in values.items() if value > 0}


def _scalar(value: Array) -> float:
    return float(np.asarray(value).reshape(-1)[0])
