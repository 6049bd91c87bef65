"""Goodput: which part of the wall time trains, and what takes the rest."""

from dataclasses import dataclass

__all__ = ["Reliability"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How often nodes fail and what a failure costs.

    The default rate is Meta's RSC-1 (arXiv:2410.21680): 6.5 failures per 1000 node-days of 8 GPUs, the rate its own
    projections use. `restart_s` is detection, rescheduling, start, and first step, without loading the checkpoint;
    15 minutes is a guess in the middle of what is published (MegaScale < 10 min to detect, SKT median 11 min).
    """

    name: str = "default"
    failures_per_1000_node_days: float = 6.5
    restart_s: float = 900.0
    repair_s: float = 3 * 86400.0
    checkpoint_write_bytes_per_s: float = 2e9
    source: str = "arXiv:2410.21680 (RSC-1)"
