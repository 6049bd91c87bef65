"""Unstated settings of a published run, changed if it would not have fitted the GPU on which it ran.

The framework's profile says how a run usually goes. A prediction larger than the GPU contradicts it, so one
of the choices that the row does not state was another: the least change with which the run fits is taken,
and said. Nothing of this is assumed of a plan.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import COMPILED_SINCE
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.domain.workload import AttentionKernel, LossKernel, Method, Recompute
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.estimate.parameters import load_memory
from rightsizer_engine.values import immutable

CROWDED, USUAL_BYTES = 1.0 / 3.0, 64 * 2.0**30
"""Share of a GPU's memory (USUAL_BYTES at most) above which logits mean a fused loss. A guess."""


@immutable
class Unstated:
    """The choices that a row leaves to its framework, beside those that a case shows as AUTO."""

    recompute: bool
    sharding: bool


@immutable
class _Change:
    """One other choice: how far it is from the usual, what it says, and the case with it."""

    size: int
    says: str
    apply: Callable[[Case], Case]


_SAME = _Change(size=0, says="", apply=lambda case: case)


def as_it_ran(case: Case, unstated: Unstated) -> Case:
    """The case with the least change of unstated choices that fits its GPU; the smallest if none does."""
    case = _losing_little(case)
    if _fits(Cases.of(case), case)[0]:
        return case
    tried = sorted(itertools.product(*_choices(case, unstated)), key=lambda some: sum(c.size for c in some))
    changed = [_applied(case, some) for some in tried]
    fits, bytes_ = _fits(Cases.stack(changed), case)
    best = int(np.argmax(fits)) if np.any(fits) else int(np.argmin(bytes_))
    said = tuple(change.says for change in tried[best] if change.says)
    return replace(changed[best], assumptions=(*case.assumptions, *said))


def _fits(cases: Cases, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Whether each of the cases could have run on the case's GPU, and the bytes that it needs."""
    found = device_memory.estimate(cases)
    needed = np.atleast_1d(found.allocated_bytes + found.context_bytes)
    return needed <= case.cluster.gpu.memory_bytes, needed


def _applied(case: Case, changes: tuple[_Change, ...]) -> Case:
    for change in changes:
        case = change.apply(case)
    return case


def _choices(case: Case, unstated: Unstated) -> Iterator[tuple[_Change, ...]]:
    """For each unstated choice: the usual one, then others."""
    work, facts = case.workload, case.framework
    usual_loss = facts.loss not in {LossKernel.FUSED, LossKernel.CHUNKED} and case.layout.cp == 1
    if work.loss is LossKernel.AUTO and usual_loss:
        yield _SAME, _on_workload(1, "loss not stated: fused, to fit the GPU", loss=LossKernel.FUSED)
    if work.attention is AttentionKernel.AUTO and facts.attention is AttentionKernel.EAGER:
        yield (
            _SAME,
            _on_workload(1, "attention not stated: flash, to fit the GPU", attention=AttentionKernel.FLASH),
        )
    if work.method is Method.LORA and not work.frozen_bits and facts.weight_bytes > 2:
        yield _SAME, _on_workload(1, "frozen weights not stated: 16 bits, to fit the GPU", frozen_bits=16)
    if unstated.recompute:
        modes = [Recompute.SELECTIVE] if facts.can_selective_recompute else []
        more = [m for m in (*modes, Recompute.FULL) if m > case.layout.recompute]
        yield _SAME, *(_recomputing(mode) for mode in more)
    if unstated.sharding and case.layout.sharding < Sharding.ZERO3 and case.layout.dp * case.layout.cp > 1:
        able = {
            Sharding.ZERO1: facts.can_zero1,
            Sharding.ZERO2: facts.can_zero2,
            Sharding.ZERO3: facts.can_zero3,
        }
        more_shards = [s for s, can in able.items() if can and s > case.layout.sharding]
        yield _SAME, *(_sharding(kind) for kind in more_shards)


def _on_workload(size: int, says: str, **changes: object) -> _Change:
    def apply(case: Case) -> Case:
        return replace(case, workload=replace(case.workload, **changes))  # type: ignore[arg-type]

    return _Change(size=size, says=says, apply=apply)


def _recomputing(mode: Recompute) -> _Change:
    def apply(case: Case) -> Case:
        layout = replace(case.layout, recompute=mode, recompute_layers=0)
        return replace(case, layout=layout, workload=replace(case.workload, recompute=mode))

    return _Change(
        size=int(mode), says=f"recompute not stated: {mode.name.lower()}, to fit the GPU", apply=apply
    )


def _sharding(kind: Sharding) -> _Change:
    says = f"sharding not stated: {kind.name.lower()}, to fit the GPU"
    return _Change(
        size=2 + int(kind),
        says=says,
        apply=lambda case: replace(case, layout=replace(case.layout, sharding=kind)),
    )


def _losing_little(case: Case) -> Case:
    """Assume a fused loss if one sequence's logits would crowd the GPU and the loss is not stated.

    Context parallelism already splits the logits, and before `COMPILED_SINCE` fused losses were rare.
    """
    whole = case.framework.loss is LossKernel.EAGER or not case.framework.known
    open_ = whole and case.workload.loss is LossKernel.AUTO and case.layout.cp == 1
    if not open_ or 0 < case.workload.library_year < COMPILED_SINCE:
        return case
    tokens = case.workload.sequence_tokens / case.layout.tp
    logits_bytes = load_memory().logit_bytes_eager * tokens * case.architecture.vocab
    if logits_bytes < CROWDED * min(case.cluster.gpu.memory_bytes, USUAL_BYTES):
        return case
    said = "loss not stated: fused, because whole logits would crowd the GPU"
    work = replace(case.workload, loss=LossKernel.FUSED)
    return replace(case, workload=work, assumptions=(*case.assumptions, said))
