"""Fit the hardware's curves to the measured tables: matmuls, attention, memory, NVLink.

    python -m bench.fit.curves [REFERENCE] [--date 2026-11-21]

Writes data/curves.json and prints each curve's error: on all rows, and leaving out one GPU (or table) at a
time where two share a parameter.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from bench.fitting import DATA, arguments, fit, read, save, summary
from bench.reference import reference
from bench.results import RESULTS, write_json

from rightsizer_engine.estimate import collectives
from rightsizer_engine.estimate.parameters import Parameter, Parameters, load_curves, load_step_time
from rightsizer_engine.estimate.step import kernels
from rightsizer_engine.estimate.step.attention import flash_s

GENERATION = {"A100": "ampere", "H100": "hopper", "B200": "blackwell", "A40-": "gddr", "H200": "hopper"}
MULTIPROCESSORS = {"A100": 108, "H100": 132, "B200": 148, "A40-": 84}
PEAK = {"A100": 312e12, "H100": 989.4e12, "B200": 2250e12, "A40-": 149.7e12}
MEMORY = {"A100-S": 2039e9, "A100-P": 1935e9, "H100-S": 3350e9, "B200-S": 8e12, "A40-48": 696e9}
SMALLEST_FLOP = 5e9
SMALLEST_MESSAGE = 5e5


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One measured table, its prediction, and the parameters that it fits."""

    name: str
    labels: Any
    measured_s: Any
    predict: Callable[[Parameters], Any]
    names: Sequence[str]


def _weights(labels: Any) -> Any:
    """Each label weighs as the square root of its rows, at most 200."""
    names, inverse, count = np.unique(labels, return_inverse=True, return_counts=True)
    del names
    return (np.sqrt(np.minimum(count, 200)) / count)[inverse]


def _columns(rows: Sequence[Mapping[str, str]], *names: str) -> list[Any]:
    return [np.asarray([float(row[name]) for row in rows]) for name in names]


def matmuls(folder: Path) -> Table:
    """Dense 16-bit matmuls of training size."""
    rows = [r for r in read(folder, "gemm_measured.csv") if r["batch"] == "1" and float(r["m"]) >= 512]
    rows = [r for r in rows if 2 * float(r["m"]) * float(r["n"]) * float(r["k"]) >= SMALLEST_FLOP]
    m, n, k, micros = _columns(rows, "m", "n", "k", "time_us")
    short = [r["gpu"][:4] for r in rows]
    code = np.asarray([kernels.GENERATIONS.index(GENERATION[g]) for g in short])
    peak = np.asarray([PEAK[g] for g in short])
    memory = np.asarray([MEMORY[r["gpu"][:6]] for r in rows])
    multiprocessors = np.asarray([MULTIPROCESSORS[g] for g in short])

    def predict(p: Parameters) -> Any:
        speed: Any = SimpleNamespace(
            hbm_bytes_per_s=memory * p.keyed("hbm_fraction", kernels.GENERATIONS)[code],
            multiprocessors=multiprocessors,
        )
        return p.launch_s + kernels.matmul_s(
            m,
            n,
            k,
            flop_per_s=peak * p.keyed("matmul_plateau", kernels.GENERATIONS)[code],
            half_k=p.keyed("matmul_half_k", kernels.GENERATIONS)[code],
            rates=speed,
            parameters=p,
        )

    names = [f"{stem}_{g}" for stem in ("matmul_plateau", "matmul_half_k") for g in GENERATION.values()]
    names = [*dict.fromkeys(names), "tile_128", "tile_64", "tile_32", "wave_exponent", "launch_s"]
    labels = np.asarray([r["gpu"] for r in rows])
    return Table(name="matmul", labels=labels, measured_s=micros * 1e-6, predict=predict, names=names)


def attention(folder: Path) -> Table:
    """Causal flash attention, both directions."""
    rows = read(folder, "attention_measured.csv")
    b, s, heads, qk, v, micros = _columns(
        rows, "batch", "seq_len", "heads", "qk_head_dim", "v_head_dim", "time_us"
    )
    short = np.asarray([r["gpu"][:4] for r in rows])
    code = np.asarray([kernels.GENERATIONS.index(GENERATION[g]) for g in short])
    peak = np.asarray([PEAK[g] for g in short])
    back = np.asarray([r["pass"].startswith("b") for r in rows])
    flop = b * s * s * heads * (qk + v)

    def predict(p: Parameters) -> Any:
        forward = peak * np.where(short == "B200", p.flash_own_blackwell, p.flash_2_ampere)
        forward = forward * np.where(qk > 160, p.flash_head_192, 1.0)
        ratio = p.keyed("flash_backward", kernels.GENERATIONS)[code]
        rate = np.where(back, forward * 2.5 / ratio, forward)
        return flash_s(np.where(back, 2.5, 1.0) * flop, s, rate, p)

    names = ["flash_2_ampere", "flash_own_blackwell", "flash_backward_ampere", "flash_backward_blackwell"]
    labels = np.asarray([f"{r['gpu']} {r['pass']}" for r in rows])
    return Table(
        name="attention",
        labels=labels,
        measured_s=micros * 1e-6,
        predict=predict,
        names=[*names, "flash_chain_s_per_token", "flash_head_192"],
    )


def memory(folder: Path) -> Table:
    """Residual additions: two reads and one write of every element."""
    rows = [
        r for r in read(folder, "elementwise_measured.csv") if r["op"] == "add" and int(r["tokens"]) >= 2048
    ]
    tokens, hidden, micros = _columns(rows, "tokens", "hidden", "time_us")
    code = np.asarray([kernels.GENERATIONS.index(GENERATION[r["gpu"][:4]]) for r in rows])
    peak = np.asarray([MEMORY[r["gpu"][:6]] for r in rows])

    def predict(p: Parameters) -> Any:
        rate = peak * p.keyed("hbm_fraction", kernels.GENERATIONS)[code]
        return 3 * kernels.BF16_BYTES * tokens * hidden / rate + p.launch_s

    return Table(
        name="memory",
        labels=np.asarray([r["gpu"] for r in rows]),
        measured_s=micros * 1e-6,
        predict=predict,
        names=["hbm_fraction_ampere", "hbm_fraction_hopper", "hbm_fraction_gddr"],
    )


def rings(folder: Path) -> Table:
    """All-reduces inside one NVSwitch domain."""
    found = [
        (f"{r['system']} {r['ranks']}", int(r["ranks"]), float(r["message_bytes"]), float(r["time_us"]))
        for r in read(folder, "collectives_measured.csv")
        if r["collective"] == "all_reduce" and r["ranks"] == r["devices_per_node"] and "dgx" in r["system"]
    ]
    found += [
        (r["system"], 8, float(r["payload_bytes"]), float(r["time_us"]))
        for r in read(folder, "nccl_measured.csv")
        if r["nodes"] == "1"
    ]
    found = [row for row in found if row[2] >= SMALLEST_MESSAGE]
    labels = np.asarray([row[0] for row in found])
    ranks, payload, micros = (np.asarray([row[i] for row in found]) for i in (1, 2, 3))
    line = np.where([("H" in x or "h100" in x) for x in labels], 4.5e11, 3e11)
    line = np.where(["B200" in x for x in labels], 9e11, line)

    def predict(p: Parameters) -> Any:
        wires = collectives.Links(
            inside_bytes_per_s=line * p.nvlink_fraction,
            between_bytes_per_s=line,
            line_bytes_per_s=line,
            reach_gpus=ranks,
            switched=ranks > 1,
            datagrams=ranks < 1,
        )
        return collectives.ring_s(payload, collectives.group(wires, ranks), wires, p, passes=2.0)

    return Table(
        name="ring",
        labels=labels,
        measured_s=micros * 1e-6,
        predict=predict,
        names=["nvlink_fraction", "ring_latency_s", "ring_step_s"],
    )


def _solve(table: Table, parameters: Parameters, keep: Any) -> Mapping[str, float]:
    weights = np.where(keep, 3 * _weights(table.labels), 0.0)
    return fit(table.predict, table.measured_s, weights, parameters, table.names, rounds=40).values


def held_out(table: Table, parameters: Parameters) -> Any:
    """Ln errors with each tenth of the rows left out of the fit in turn (rows dealt by position)."""
    error = np.empty(len(table.measured_s))
    turn = np.arange(len(error)) % 10
    for part in range(10):
        values = _solve(table, parameters, turn != part)
        part_error = np.log(table.predict(parameters.replace(**values)) / table.measured_s)
        error[turn == part] = part_error[turn == part]
    return error


def main() -> None:
    """Fit, report, write."""
    given = arguments(__doc__).parse_args()
    folder, parameters = reference(given.reference), load_step_time() | load_curves()
    fitted: dict[str, Parameter] = {}
    report: dict[str, Any] = {}
    for make in (memory, matmuls, attention, rings):
        table = make(folder)
        values = _solve(table, parameters, np.ones(len(table.measured_s), bool))
        parameters = parameters.replace(**values)
        error = np.log(table.predict(parameters) / table.measured_s)
        outside = held_out(table, parameters)
        report[table.name] = {"in_sample": summary(error), "held_out": summary(outside)}
        print(f"{table.name:10s} in sample {summary(error)}\n{'':10s} held out  {summary(outside)}")
        for label in np.unique(table.labels):
            found = summary(error[table.labels == label])
            report[table.name][str(label)] = found
            print(f"  {label:36s} {found}")
        for name, value in values.items():
            fitted[name] = replace(
                parameters.entry(name),
                value=value,
                fitted_on=f"{table.name}: {len(error)} measured rows",
                date=given.date,
                residual=summary(outside)["median_pct"] / 100,
            )
    write_json(RESULTS / "curves.json", report)
    save(DATA / "curves.json", [fitted.get(name, parameters.entry(name)) for name in load_curves()])


if __name__ == "__main__":
    main()
