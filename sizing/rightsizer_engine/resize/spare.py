"""A job without a deadline takes idle GPUs, and gives them back to a waiting job."""

from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.resize.candidates import CandidateSizes, SizeChoice
from rightsizer_engine.resize.types import Action, JobSize
from rightsizer_engine.units import format_duration


def choose_spare(
    sizes: CandidateSizes, *, first_gpus: int, others_waiting: bool | None, p: Parameters
) -> SizeChoice:
    """Return to `first_gpus` while others wait; take the largest worthwhile size while none does."""
    present = sizes.present
    if others_waiting is None:
        return SizeChoice(why="no deadline to size for; unknown whether other jobs wait for GPUs")
    if others_waiting:
        fewer = [s for s in sizes.alternatives if first_gpus <= s.gpus < present.gpus]
        if not fewer:
            return SizeChoice(why="no deadline to size for")
        spare = present.gpus - fewer[0].gpus
        why = f"gives back {spare} spare GPUs to jobs that wait for some; it has no deadline"
        return SizeChoice(action=Action.SHRINK, size=fewer[0], why=why)
    more = [s for s in sizes.alternatives if s.gpus > present.gpus and _worthwhile(sizes, s, p)]
    if not more:
        return SizeChoice(why="no deadline to size for")
    sooner_s = sizes.seconds(present) - sizes.seconds(more[-1])
    why = (
        f"{more[-1].gpus - present.gpus} GPUs are idle: with them it ends {format_duration(sooner_s)} sooner"
    )
    return SizeChoice(action=Action.GROW, size=more[-1], why=why)


def _worthwhile(sizes: CandidateSizes, size: JobSize, p: Parameters) -> bool:
    """Whether the GPUs become speed, and the end comes sooner by more than a restart's noise."""
    present = sizes.present
    faster = size.tokens_per_s * size.goodput / (present.tokens_per_s * present.goodput) - 1.0
    gain = faster / (size.gpus / present.gpus - 1.0)
    sooner = sizes.seconds(size) * p.relayout_gain <= sizes.seconds(present)
    return gain >= p.least_spare_gain and sooner
