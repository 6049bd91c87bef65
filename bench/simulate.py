"""How much resizing saves on real jobs: the Philly trace replayed under several assumptions.

Writes bench/results/simulate.json and docs/simulate.svg. The trace is traces/philly_jobs.csv.gz under
$RIGHTSIZER_REFERENCE (default: ../shared/reference). Each case is written when it is done.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightsizer.simulation import Rules
from rightsizer_cli.drawing import Draw
from rightsizer_cli.plot_replay import draw_replay
from rightsizer_cli.replays import replayed, report
from rightsizer_cli.traces import read_trace

ROOT = Path(__file__).parents[1]
REFERENCE = Path(os.environ.get("RIGHTSIZER_REFERENCE", ROOT.parent / "shared" / "reference"))
RESULT = ROOT / "bench" / "results" / "simulate.json"
PAGE = ROOT / "docs" / "simulate.md"

CASES = {
    "default": Draw(),
    "deadlines 1 to 3": Draw(deadlines=(1.0, 3.0)),
    "utilisation of Philly": Draw(utilisation="philly"),
    "utilisation of Philly, deadlines 1 to 3": Draw(utilisation="philly", deadlines=(1.0, 3.0)),
    "two thirds of the rest fixed": Draw(fixed_share=0.64),
    "seed 1": Draw(seed=1),
}
"""0.64: of Platform-X's classified causes (ICSE 2024), those whose cost is per step or per checkpoint."""

BEGIN, END = "<!-- table: python -m bench.simulate -->", "<!-- end of table -->"
WAYS = ("static", "rightsizer", "oracle")
KEPT = (*WAYS, "savedFraction", "aboveOracleFraction", "clusterGPUs", "assumptions")


def main() -> None:
    """Replay every case and write what came out of it."""
    trace = read_trace(REFERENCE / "traces" / "philly_jobs.csv.gz")
    found: dict[str, Any] = {"trace": trace.name, "jobs": len(trace.rows), "cases": {}}
    for name, draw in CASES.items():
        began = time.process_time()
        one = replayed(trace, draw, Rules(), None)
        document = report(one)
        found["cases"][name] = {key: document[key] for key in KEPT}
        found["cases"][name]["cpuSeconds"] = round(time.process_time() - began, 1)
        if name == "default":
            found["virtualClusters"] = document["virtualClusters"]
            draw_replay(one, ROOT / "docs" / "simulate.svg")
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
        saved, above = document["savedFraction"], document["aboveOracleFraction"]
        missed = {way: document[way]["missedDeadlines"] for way in WAYS}
        print(f"{name}: {saved:.1%} fewer GPU-hours, missed {missed}, {above:.1%} above the oracle")
    PAGE.write_text(with_table(PAGE.read_text(), found))


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
    main()
