"""The plan's global batch as micro-batch x accumulation x data ranks, for any number of workers."""

from rightsizer.errors import InputError
from rightsizer.values import immutable
from rightsizer_launch.worker.agent import JobLayout

__all__ = ["Batch", "batch_for"]


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
    share, rest = divmod(sequences, layout.dp)
    if rest:
        remedy = f"does not divide by {layout.dp} data-parallel workers"
        raise InputError("workload.globalBatchSequences", value=sequences, remedy=remedy)
    micro_batch = max(size for size in range(1, min(layout.micro_batch, share) + 1) if share % size == 0)
    return Batch(
        micro_batch=micro_batch,
        micro_batches=share // micro_batch,
        tokens=sequences * max(1, layout.sequence_tokens),
    )
