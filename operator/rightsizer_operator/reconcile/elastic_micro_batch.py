"""A micro-batch for plans whose workers come and go: one that divides at their other sizes too. Pure."""

from collections.abc import Callable
from dataclasses import replace

from rightsizer.search.types import NoPlan, Plan, Request

__all__ = ["roaming"]

_DEAREST = 1.05
"""How much longer steps may take for it; a guess. Without it a resize may cost a whole new start."""


def roaming(
    asked: Request, answer: Plan, sizes: range, size: Callable[[Request], Plan | NoPlan]
) -> Plan | NoPlan:
    """The answer, or the same size with a smaller micro-batch that fits more of its other sizes.

    Workers are told their micro-batch once. Of those that divide the present one, the smallest that is worth
    having divides the batch at every size that divides it at all; it is taken if it is not too dear, else the
    next. Only of plans that are data parallel throughout, and do not say their micro-batch themselves.
    """
    option = answer.option
    layout, batch = option.layout, option.global_batch_sequences
    if "micro_batch" in asked.pinned or layout.dp != layout.gpus or layout.ep > 1 or layout.shard_group:
        return answer
    shares = [batch // gpus for gpus in sizes if batch % gpus == 0]
    divisors = [m for m in range(1, layout.micro_batch + 1) if layout.micro_batch % m == 0]
    fewest = max(m for m in divisors if all(share % m == 0 for share in shares))
    here = replace(asked, gpu_counts=(layout.gpus,), clusters=(option.cluster,), batch_tolerance=0.0)
    here = replace(here, workload=replace(here.workload, global_batch_sequences=batch))
    for micro_batch in divisors[divisors.index(fewest) : -1]:
        other = size(replace(here, pinned={**asked.pinned, "micro_batch": micro_batch}))
        if isinstance(other, Plan) and _as_good(other, answer):
            return other
    return answer


def _as_good(other: Plan, answer: Plan) -> bool:
    layout, dearest_s = other.option.layout, _DEAREST * answer.option.step_s
    return layout.dp == layout.gpus and not layout.shard_group and other.option.step_s <= dearest_s
