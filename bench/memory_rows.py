"""Published peaks of memory: the kind of memory and the rank measured, and inputs from the notes.

The kind of memory (from the row's note, else from the README of the reference tables) is an input of the
comparison, not of the engine, which always estimates allocated, reserved and device bytes of the fullest
stage.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from bench.fitting import runs
from bench.profiles import forgetting

from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.errors import UnsupportedError
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.published.rows import case_from_row

GIB = 2.0**30

_KINDS = (
    ("allocated", r"(?:max|peak)[-_ ](?:memory[-_ ])?alloc|memory allocated|peak active"),
    ("reserved", r"reserved"),
    ("device", r"nvidia-smi|device-level|rocm-smi|amd-smi|memory\.used"),
)
"""Signs in a row's note of which memory was read; the first in the note counts."""
KIND = dict.fromkeys(("AO", "PRIMERL", "SWIFT", "TITAN"), "reserved")
"""Sources of whose notes some do not say it; the README of the tables does. Others: what the device shows."""
RANK = {"MLPERF": "first", "MLMTEST": "last"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRows:
    """n published peaks and their cases."""

    rows: Sequence[Mapping[str, str]]
    cases: Cases
    source: Array
    wave: Array
    measured_bytes: Array
    kind: Array
    rank: Array
    parts: Mapping[str, Cases]
    unsupported: Sequence[str]

    def part(self, rank: str) -> Cases:
        """The cases of the rows measured on that rank."""
        return self.parts[rank]


def load(folder: Path, *, notes: bool = False, blind: bool = False, forget: bool = False) -> MemoryRows:
    """The usable rows of the reference table."""
    return build(forgetting(runs(folder)) if forget else runs(folder), notes=notes, blind=blind)


def build(table: Sequence[Mapping[str, str]], *, notes: bool = False, blind: bool = False) -> MemoryRows:
    """The usable rows that the engine supports; with `notes`, inputs in free text become columns."""
    rows: list[Mapping[str, str]] = []
    cases: list[Case] = []
    unsupported: list[str] = []
    for row in table:
        if row["usable_memory"] != "1":
            continue
        shown = promoted(row) if notes else row
        try:
            cases.append(case_from_row({**shown, "framework": ""} if blind else shown))
            rows.append(row)
        except UnsupportedError as reason:
            unsupported.append(f"{row['id']}: {reason}")
    source = np.asarray([r["id"].rsplit("-", 1)[0] for r in rows])
    rank = np.asarray([RANK.get(s, "fullest") for s in source])
    parts = {
        str(r): Cases.stack(c for c, at in zip(cases, rank, strict=True) if at == r) for r in np.unique(rank)
    }
    return MemoryRows(
        rows=rows,
        cases=Cases.stack(cases),
        source=source,
        wave=np.asarray([r.get("wave", "") for r in rows]),
        measured_bytes=np.asarray([float(r["peak_memory_gib"]) for r in rows]) * GIB,
        kind=np.asarray(
            [kind_of(r["note"]) or KIND.get(s, "device") for r, s in zip(rows, source, strict=True)]
        ),
        rank=rank,
        parts=parts,
        unsupported=unsupported,
    )


def kind_of(note: str) -> str:
    """The kind of memory that a row's note names: allocated, reserved or device; "" if none."""
    found = [(m.start(), kind) for kind, sign in _KINDS if (m := re.search(sign, note, re.IGNORECASE))]
    return min(found)[1] if found else ""


def predicted_bytes(peaks: MemoryRows, parameters: Parameters | None = None) -> Array:
    """The engine's prediction of the kind of memory, and on the rank, that each source measured."""
    p = parameters or device_memory.load_memory()
    result = np.zeros(len(peaks.rows))
    for rank in ("fullest", "first", "last"):
        mine = np.flatnonzero(peaks.rank == rank)
        if not mine.size:
            continue
        cases, pp = peaks.part(rank), np.asarray(peaks.part(rank).layout.pp)
        index = {"fullest": None, "first": np.zeros_like(pp), "last": pp - 1}[rank]
        predicted = (
            device_memory.estimate(cases, p) if index is None else device_memory.stage_memory(cases, p, index)
        )
        for kind in ("allocated", "reserved", "device"):
            values = np.broadcast_to(getattr(predicted, f"{kind}_bytes"), mine.shape)
            result[mine] = np.where(peaks.kind[mine] == kind, values, result[mine])
    return result


_CUMULATED = (
    r"\+chunked CE|\+activation (?:ckpt|offload)|\+optimizer in bwd|\+8bit AdamW|activation offload kept"
)
"""Techniques added one by one to a compiled run with a chunked loss."""
_SIGNS = (
    ("compile", r"; eager;", "0"),
    ("scaling", r"float8 rowwise", "row"),
    ("fp8_gather", r"(?:float8|fp8) all-gather", "1"),
    ("quantiser", r"gptq|GPTQ", "gptq"),
    ("overlap_tensor", r"async TP|tp_comm_overlap", "1"),
    ("overlap_experts", r"1f1b overlap", "1"),
    ("overlap_gradients", r"all comm overlap disabled", "0"),
    ("attention", r"flash_attention_2", "flash2"),
    ("attention", r"flash_attention_3", "flash3"),
    ("attention", r"flash_attention_4", "flash4"),
    ("flash_attention", r"impl local|transformer-impl local", "0"),
    ("lora_targets", r"LM head trained too", "all+embeddings"),
    ("lora_targets", r"all linear layers and experts", "all+experts"),
    ("lora_adapters", r"up to 4 adapters", "4"),
    ("lora_targets", r"'(?:up|gate|down)_proj'|w1,w2|targets ALL|all linear layers", "all"),
    ("quantised_bits", r"int8", "8"),
    (
        "compile",
        r"torch\.compile|\+ ?compile|compile\+|" + _CUMULATED,
        "1",
    ),
    ("loss", r"chunked \(fused\) LM head", "fused"),
    ("loss", r"loss keeps full logits|\+packed|\+compile", "eager"),
    ("loss", _CUMULATED, "chunked"),
    ("variable_length", r"not padded or packed|unpacked", "1"),
    ("offload", r"activation offload kept", "activation"),
)


def promoted(row: Mapping[str, str]) -> dict[str, str]:
    """The row with inputs from its note and test name as columns, where the columns are empty."""
    note, result = row["note"], dict(row)
    for column, sign, value in _SIGNS:
        if re.search(sign, note) and not result.get(column):
            result[column] = value
    rank = re.search(r"rank(?: default)? (\d+)|\br=(\d+)", note, re.I)
    dense = re.search(r"dense_layers=(\d+)", note)
    expert = re.search(r"etp(\d)", row["model_name"])
    for column, match in (("lora_rank", rank), ("dense_layers", dense), ("expert_tp", expert)):
        if match:
            result[column] = next(g for g in match.groups() if g)
    if re.search("liger", row["framework"], re.I) and not result.get("loss"):
        result["loss"] = "liger"
    if "multi_dist_optimizer" in row["model_name"]:  # the test configures two instances
        result["zero_stage_or_fsdp"] += f" within {max(1, int(row['dp']) // 2)}"
    if "cross_entropy_loss_fusion" in row["model_name"]:
        result["loss"] = "jit"
    return result | _configured().get(row["model_name"], {})


@cache
def _configured() -> Mapping[str, dict[str, str]]:
    """Inputs from the configuration files of Megatron-LM's functional tests, for which no column exists.

    Each is from the model_config.yaml beside the row's golden values, at the same commit.
    """
    with Path(__file__).with_name("memory_inputs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {r["model_name"]: dict(word.split("=") for word in r["inputs"].split()) for r in rows}
