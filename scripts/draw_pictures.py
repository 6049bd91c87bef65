"""Draw the plots that the documentation shows: `python scripts/draw_pictures.py [--check]`."""

import sys
from pathlib import Path

from rightsizer.fleet.trace_jobs import ReplayRules
from rightsizer_cli.commands.simulate.attributes import DEADLINES, SCALINGS, Draw
from rightsizer_cli.commands.simulate.comparison import compare
from rightsizer_cli.commands.simulate.plot import replay_figure
from rightsizer_cli.commands.simulate.traces import read_trace
from rightsizer_cli.figures import picture
from rightsizer_cli.page.answer import answered
from rightsizer_cli.plan_figure import plan_figure

FOLDER = Path(__file__).parent.parent / "docs" / "images"
QUESTION = {
    "model": "meta-llama/Llama-3.1-70B",
    "tokens": "15B",
    "deadline": "3d",
    "gpu": "H100",
    "budget": "$40k",
}


def drawn() -> dict[str, bytes]:
    """The files of the folder that this script writes."""
    answer = answered(QUESTION, calibrate=False)
    assert answer.plan is not None, answer
    plan = answer.plan
    draws = [Draw(deadlines=bounds, scaling=kind) for kind in SCALINGS for bounds in DEADLINES]
    replay = compare(read_trace(None), draws, ReplayRules(), None)
    return {
        "plan.svg": picture(lambda: plan_figure(plan), "svg"),
        "simulate.svg": picture(lambda: replay_figure(replay), "svg"),
    }


def main(arguments: list[str]) -> int:
    """Write the files, or with --check only compare; 1 if one is stale."""
    files = drawn()
    if "--check" not in arguments:
        for name, content in files.items():
            (FOLDER / name).write_bytes(content)
        return 0
    stale = [
        name
        for name, content in files.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_bytes() != content
    ]
    for name in stale:
        sys.stderr.write(f"stale: docs/images/{name}; run make generate\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
