"""Rates measured at earlier sizes of a job: believed over the model's prediction for those sizes. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from rightsizer_engine.estimate.evidence import noise_ln
from rightsizer_engine.estimate.parameters import Parameters, load_calibration
from rightsizer_engine.resize.types import JobSize, Visit
from rightsizer_engine.search.reasons import layout_text


def with_visits(
    sizes: Sequence[JobSize], visited: Iterable[Visit], *, present_gpus: int, p: Parameters
) -> tuple[JobSize, ...]:
    """Model sizes through the present rate, corrected by the rates measured at earlier sizes.

    A visited size has its measured rate, with the noise of that measurement. Between a visited size and the
    present one, ln(measured / model) is interpolated over ln(GPUs); beyond the outermost, it stays constant.
    """
    measured = {(v.gpus, v.layout): v for v in visited if _usable(v, p)}
    others = {i: s for i, s in enumerate(sizes) if s.gpus != present_gpus or not s.in_place}
    seen = {i: visit for i, size in others.items() if (visit := _visit(measured, size)) is not None}
    if not seen:
        return tuple(sizes)
    points = {v.gpus: math.log(v.tokens_per_s / sizes[i].tokens_per_s) for i, v in seen.items()}
    points[present_gpus] = 0.0
    gpus = sorted(points)
    at, residuals = np.log(gpus), [points[n] for n in gpus]
    return tuple(
        _measured(size, seen[i])
        if i in seen
        else replace(
            size,
            tokens_per_s=size.tokens_per_s * math.exp(float(np.interp(math.log(size.gpus), at, residuals))),
        )
        for i, size in enumerate(sizes)
    )


def _usable(visit: Visit, p: Parameters) -> bool:
    return visit.gpus > 0 and visit.steps >= p.least_steps and 0 < visit.tokens_per_s < math.inf


def _visit(measured: dict[tuple[int, str], Visit], size: JobSize) -> Visit | None:
    """The visit to this size, by its layout's text; a visit without one is to the size in place."""
    text = layout_text(size.layout) if size.layout is not None else ""
    found = measured.get((size.gpus, text))
    return found or (measured.get((size.gpus, "")) if size.in_place else None)


def _measured(size: JobSize, visit: Visit) -> JobSize:
    noise = noise_ln(visit.steps, load_calibration().step_scatter)
    return replace(size, tokens_per_s=visit.tokens_per_s, sigma=noise)
