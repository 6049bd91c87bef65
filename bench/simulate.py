"""How much resizing saves on real jobs: the Philly trace replayed under several assumptions.

Writes bench/results/simulate.json and docs/simulate.svg. The trace is traces/philly_jobs.csv.gz under
$RIGHTSIZER_REFERENCE (default: ../shared/reference). Each case is written when it is done.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.results import RESULTS, write_json

from rightsizer.fleet.simulation import ReplayRules
from rightsizer_cli.commands.simulate.attributes import Draw
from rightsizer_cli.commands.simulate.comparison import compare, report
from rightsizer_cli.commands.simulate.plot import draw_replay
from rightsizer_cli.commands.simulate.traces import read_trace

ROOT = Path(__file__).parents[1]
REFERENCE = Path(os.environ.get("RIGHTSIZER_REFERENCE", ROOT.parent / "shared" / "reference"))
RESULT = RESULTS / "simulate.json"
PAGE = ROOT / "docs" / "simulate.md"

CASES = {
    "default": (Draw(), 1),
    "deadlines 1 to 3": (Draw(deadlines=(1.0, 3.0)), 1),
    "every 10th job: default": (Draw(), 10),
    "every 10th job: seed 1": (Draw(seed=1), 10),
    "every 10th job: two thirds of the rest fixed": (Draw(fixed_share=0.64), 10),
    "every 10th job: Philly's utilisation": (Draw(utilisation="philly"), 10),
    "every 10th job: Philly's utilisation, deadlines 1 to 3": (
        Draw(utilisation="philly", deadlines=(1.0, 3.0)),
        10,
    ),
}
"""What is drawn, and how many jobs one stands for.

0.64: of Platform-X's classified causes (ICSE 2024), those whose cost is per step or per checkpoint.
"""

BEGIN, END = "<!-- table: python -m bench.simulate -->", "<!-- end of table -->"
WAYS = ("static", "rightsizer", "oracle")
KEPT = (*WAYS, "savedFraction", "aboveOracleFraction", "clusterGPUs", "assumptions")


def main(names: Sequence[str]) -> None:
    """Replay the named cases, or all, and write what came out of them."""
    whole = read_trace(REFERENCE / "traces" / "philly_jobs.csv.gz")
    found: dict[str, Any] = {"trace": whole.name, "jobs": len(whole.rows), "cases": {}}
    if names and RESULT.exists():
        found = json.loads(RESULT.read_text())
    for name in names or CASES:
        draw, stride = CASES[name]
        began = time.process_time()
        one = compare(replace(whole, rows=whole.rows[::stride]), draw, ReplayRules(), None)
        document = report(one)
        found["cases"][name] = {key: document[key] for key in KEPT}
        found["cases"][name]["cpuSeconds"] = round(time.process_time() - began, 1)
        if name == "default":
            found["virtualClusters"] = document["virtualClusters"]
            draw_replay(one, ROOT / "docs" / "simulate.svg")
        write_json(RESULT, found)
        PAGE.write_text(with_table(PAGE.read_text(), found))
        print(f"{name}: {document['savedFraction']:.1%} fewer GPU-hours", flush=True)


def with_table(page: str, found: Mapping[str, Any]) -> str:
    """The page with its table made anew from the results."""
    lines = [
        "| assumed | GPU-hours, static | rightsizer | fewer | oracle | above it "
        "| missed, static | rightsizer | oracle |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, case in found["cases"].items():
        hours = [f"{case[way]['gpuHours']:,.0f}" for way in WAYS]
        missed = [f"{case[way]['missedDeadlines']:,}" for way in WAYS]
        saved, above = f"{case['savedFraction']:.1%}", f"{case['aboveOracleFraction']:.1%}"
        cells = [name, hours[0], hours[1], saved, hours[2], above, *missed]
        lines.append(f"| {' | '.join(cells)} |")
    before, after = page.split(BEGIN, maxsplit=1)[0], page.split(END)[1]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after


if __name__ == "__main__":
    main(sys.argv[1:])
