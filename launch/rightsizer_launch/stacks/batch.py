"""The plan's global batch as micro-batch x accumulation x data ranks, for any number of workers."""

from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_launch.worker.job_environment import JobLayout


@immutable
class Batch:
    """A rank's share of a step: `micro_batches` times `micro_batch` sequences; `tokens` are the job's."""

    micro_batch: int
    micro_batches: int
    tokens: int


def batch_for(layout: JobLayout) -> Batch | None:
    """The share of each data rank, with the same global batch for every number of them; None without a plan.

    The micro-batch is the layout's, or the largest smaller one that divides the share. InputError if the
    global batch does not divide by the data ranks.
    """
    sequences = layout.global_batch_sequences
    if not sequences:
        return None
    share = _share(layout, layout.dp, f"{layout.dp} data-parallel workers")
    micro_batch = max(size for size in range(1, min(layout.micro_batch, share) + 1) if share % size == 0)
    return Batch(
        micro_batch=micro_batch,
        micro_batches=share // micro_batch,
        tokens=sequences * max(1, layout.sequence_tokens),
    )


def accumulation_for(layout: JobLayout, micro_batch: int) -> int | None:
    """Micro-batches of a script's own size in a step of each data rank; None without a plan.

    InputError if the global batch does not divide by what all data ranks have in one micro-batch.
    """
    if not layout.global_batch_sequences:
        return None
    named = f"{layout.dp} data-parallel workers x the script's batch size {micro_batch}"
    return _share(layout, layout.dp * micro_batch, named)


def _share(layout: JobLayout, divisor: int, named: str) -> int:
    """The sequences of a step over `divisor`, which an error calls `named`."""
    share, rest = divmod(layout.global_batch_sequences, divisor)
    if rest:
        remedy = f"does not divide by {named}"
        raise InputError("workload.globalBatchSequences", value=layout.global_batch_sequences, remedy=remedy)
    return share
