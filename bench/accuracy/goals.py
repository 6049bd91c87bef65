"""The named goals of step-time accuracy: the rows that each judges, and the mean |error| that it allows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from bench.accuracy.published import published
from bench.step_rows import StepRows

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.estimate.step import step_time
from rightsizer_engine.published.rows import case_from_row

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One goal: rows, mean |ln error| in percent as fitted and with the source left out, and the limit."""

    name: str
    rows: int
    seen_pct: float
    left_out_pct: float
    allowed_pct: float

    @property
    def met(self) -> bool:
        """True if the error with the source left out is within the limit."""
        return self.left_out_pct <= self.allowed_pct


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Quality of choices by prediction: time lost against the measured best, and pairs in the right order."""

    name: str
    groups: int
    mean_regret_pct: float
    worst_regret_pct: float
    pairs: int
    pairs_right_pct: float


def _source(row: Row) -> str:
    return row["id"].rsplit("-", 1)[0]


def _number(row: Row) -> int:
    return int(row["id"].rsplit("-", 1)[1])


def _adapters(row: Row) -> bool:
    return row["method"] in {"lora", "qlora"}


_GOALS: Sequence[tuple[str, float, Callable[[Row], bool]]] = (
    ("Korthikanti Table 5", 3.0, lambda r: _source(r) == "KORTH" and _number(r) <= 8),
    ("vTrain multi-node", 9.0, lambda r: _source(r) == "VTRAIN" and int(r["gpus"]) > 8),
    ("vTrain single-node", 12.0, lambda r: _source(r) == "VTRAIN" and int(r["gpus"]) <= 8),
    ("MPT (llm-foundry FSDP)", 7.0, lambda r: _source(r) == "LLMF"),
    ("Megatron-Bridge", 12.0, lambda r: _source(r) == "MBRIDGE"),
    ("BLOOM layout sweep", 6.0, lambda r: _source(r) == "BLOOM"),
    ("torchtitan", 8.0, lambda r: _source(r) == "TITAN"),
    ("LoRA and QLoRA", 20.0, _adapters),
)


def row_goals(rows: StepRows, seen: Array, left_out: Array) -> list[Goal]:
    """Goals on rows of the reference table."""
    found = []
    for name, allowed, belongs in _GOALS:
        mine = np.asarray([belongs(row) for row in rows.rows]) & rows.judged
        found.append(_goal(name, allowed, seen[mine], left_out[mine]))
    return found


def table_goals() -> list[Goal]:
    """Goals on tables that never enter the fit: both errors are the engine's as it ships."""
    rows = published()
    cases = Cases.stack(case_from_row(row.row) for row in rows)
    error = np.log(step_time.estimate(cases).total_s / np.asarray([row.step_s for row in rows]))
    allowed = {"SC21 Table 1": 4.0, "SC21 Table 2 PTD": 3.0, "SC21 Table 2 ZeRO-3": 4.0}
    found = []
    for table in dict.fromkeys(row.table for row in rows):
        mine = error[np.asarray([row.table == table for row in rows])]
        found.append(_goal(table, allowed.get(table, 4.0), mine, mine))
    return found


def _goal(name: str, allowed: float, seen: Array, left_out: Array) -> Goal:
    return Goal(
        name=name,
        rows=len(seen),
        seen_pct=round(100 * float(np.mean(np.abs(seen))), 2),
        left_out_pct=round(100 * float(np.mean(np.abs(left_out))), 2),
        allowed_pct=allowed,
    )


def decisions(rows: StepRows, left_out: Array, *, single_node: bool) -> Decisions:
    """VTrain's groups of one model, GPU count and batch: is the predicted best layout the measured best?"""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows.rows):
        if _source(row) == "VTRAIN" and (int(row["gpus"]) <= 8) == single_node:
            key = tuple(row[name] for name in ("hidden", "layers", "gpus", "global_batch", "seq_len"))
            groups.setdefault(key, []).append(index)
    regrets, right, pairs = [], 0, 0
    for members in (np.asarray(m) for m in groups.values() if len(m) > 1):
        true = rows.measured_s[members]
        guess = true * np.exp(left_out[members])
        regrets.append(true[np.argmin(guess)] / true.min() - 1)
        above = np.triu_indices(len(members), 1)
        difference, predicted = np.subtract.outer(true, true)[above], np.subtract.outer(guess, guess)[above]
        right += int(np.sum(difference * predicted > 0))
        pairs += int(np.sum(difference != 0))
    return Decisions(
        name="vTrain single-node" if single_node else "vTrain multi-node",
        groups=len(regrets),
        mean_regret_pct=round(100 * float(np.mean(regrets)), 2),
        worst_regret_pct=round(100 * float(np.max(regrets)), 2),
        pairs=pairs,
        pairs_right_pct=round(100 * right / max(pairs, 1), 1),
    )
