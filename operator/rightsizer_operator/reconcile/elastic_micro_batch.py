"""A micro-batch that also divides the batch at the other sizes of an elastic plan. Pure."""

from collections.abc import Callable
from dataclasses import replace

from rightsizer_engine.search.types import NoPlan, Plan, Request
from rightsizer_launch.worker_spec import is_data_parallel

_LONGEST_STEP = 1.05
"""The longest step that is accepted, as a multiple of the best one; a guess.

A micro-batch that does not divide at a later size costs a new start.
"""


def with_divisible_micro_batch(
    request: Request, found: Plan, sizes: range, size: Callable[[Request], Plan | NoPlan]
) -> Plan | NoPlan:
    """The size, or the same number of GPUs with a smaller micro-batch that divides at more of `sizes`.

    Workers read their micro-batch once. The smallest useful divisor of the present one divides the batch at
    every size that the batch divides at; it is tried first, then the next larger. Plans that are not data
    parallel, and plans that state their micro-batch, keep theirs.
    """
    option = found.option
    layout, batch = option.layout, option.global_batch_sequences
    if "micro_batch" in request.pinned or not is_data_parallel(layout):
        return found
    shares = [batch // gpus for gpus in sizes if batch % gpus == 0]
    divisors = [m for m in range(1, layout.micro_batch + 1) if layout.micro_batch % m == 0]
    smallest = max(m for m in divisors if all(share % m == 0 for share in shares))
    same_size = replace(
        request,
        gpu_counts=(layout.gpus,),
        clusters=(option.cluster,),
        batch_tolerance=0.0,
        workload=replace(request.workload, global_batch_sequences=batch),
    )
    for micro_batch in divisors[divisors.index(smallest) : -1]:
        other = size(replace(same_size, pinned={**request.pinned, "micro_batch": micro_batch}))
        if isinstance(other, Plan) and _as_good(other, found):
            return other
    return found


def _as_good(other: Plan, found: Plan) -> bool:
    return is_data_parallel(other.option.layout) and (
        other.option.step_s <= _LONGEST_STEP * found.option.step_s
    )
