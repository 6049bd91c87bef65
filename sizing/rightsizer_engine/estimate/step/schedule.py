"""Pipelines in closed form: which layers a stage holds, what the schedule wastes.

Legend: p stages, v chunks of layers on each (interleaving), M micro-batches, L layers, T_i seconds that
stage i needs for one micro-batch (forward and backward).

1F1B (Narayanan et al. 2021, arXiv:2104.04473): the slowest stage works M T_max; before its first and after
its last micro-batch every other stage passes one through, in chunks of 1/v:

    t = M T_max + (sum_i T_i - T_max) / v        (equal stages: (M + (p-1)/v) T)
"""

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.framework import StageBalance
from rightsizer_engine.values import immutable


@immutable
class StageLayers:
    """Layers of a middle stage and of the last one, which also holds the head."""

    middle_layers: Array
    last_layers: Array


def stage_layers(cases: Cases) -> StageLayers:
    """Layers of a middle stage and of the last; embedding and head can count as a layer each."""
    layers = cases.architecture.layers + cases.architecture.mtp_layers
    p, v = cases.layout.pp, np.maximum(cases.layout.vpp, 1)
    even = layers % p == 0
    ends_fit = (layers + 2) % p == 0
    ends = (p > 1) & ends_fit & (~even | (cases.framework.stage_balance == StageBalance.ENDS))
    chunk = np.ceil(layers / (p * v) - 1e-9) * v
    full = np.where(even, layers / p, np.where(layers >= p * v, np.minimum(chunk, np.ceil(layers / p)), 1.0))
    middle = np.where(ends, (layers + 2) / p, np.where(p > 1, full, layers))
    remaining = layers - middle * (p - 1)
    remaining = np.where(
        remaining >= 1, remaining, np.maximum(np.floor(layers / p), 1.0)
    )  # several stages are short
    last = np.where(ends, middle - 1, np.where(p > 1, np.minimum(remaining, middle), layers))
    return StageLayers(middle_layers=np.asarray(middle), last_layers=np.asarray(last))


def bubble_s(cases: Cases, middle_s: Array, last_s: Array, everyone_s: Array | None = None) -> Array:
    """Seconds that the slowest stage waits in one step.

    `everyone_s` is the sum over all stages; without it, all but the last take as long as a middle one.
    """
    p, v = cases.layout.pp, np.maximum(cases.layout.vpp, 1)
    slowest = np.maximum(middle_s, last_s)
    everyone = (p - 1) * middle_s + last_s if everyone_s is None else everyone_s
    return np.asarray(np.where(p > 1, np.maximum(everyone - slowest, 0.0) / v, 0.0))
