"""Savings and costs of right-sizing on real jobs: every 10th job of the Philly trace under all assumptions.

    python -m bench.simulate [STRIDE]

Writes bench/results/simulate.json and the table of docs/simulate.md. The trace is
traces/philly_jobs.csv.gz of the reference tables (bench/reference.py).
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.reference import reference
from bench.results import RESULTS, write_json

from rightsizer_cli.output.replay import replay_document
from rightsizer_cli.requests.replays import compare
from rightsizer_cli.requests.trace_jobs import DEADLINES, SCALINGS, Draw
from rightsizer_cli.requests.traces import read_trace
from rightsizer_engine.fleet.trace_jobs import ReplayRules

ROOT = Path(__file__).parents[1]
RESULT = RESULTS / "simulate.json"
PAGE = ROOT / "docs" / "simulate.md"
STRIDE = 10

BEGIN, END = "<!-- table: python -m bench.simulate -->", "<!-- end of table -->"


def main(arguments: Sequence[str]) -> None:
    """Replay the trace under every assumption and write the results."""
    stride = int(arguments[0]) if arguments else STRIDE
    whole = read_trace(reference() / "traces" / "philly_jobs.csv.gz")
    began = time.process_time()
    draws = [Draw(deadlines=bounds, scaling=kind) for kind in SCALINGS for bounds in DEADLINES]
    found = compare(replace(whole, rows=whole.rows[::stride]), draws, ReplayRules(), None)
    document = replay_document(found) | {
        "stride": stride,
        "cpuSeconds": round(time.process_time() - began, 1),
    }
    write_json(RESULT, document)
    PAGE.write_text(with_table(PAGE.read_text(), document))


def with_table(page: str, document: Mapping[str, Any]) -> str:
    """The page with a new table: GPU-hours against static, and missed deadlines."""
    cases = document["cases"]
    names = list(cases[0]["policies"])
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for case in cases:
        rows = [case["policies"][name] for name in names]
        cells = [f"{row['gpuHoursChange']:+.1%}, {row['missedDeadlines']:,}" for row in rows]
        lines.append(f"| {case['assumption']} | {' | '.join(cells)} |")
    before, after = page.split(BEGIN, maxsplit=1)[0], page.split(END)[1]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after


if __name__ == "__main__":
    main(sys.argv[1:])
