"""Draw the plots that the documentation shows: `python scripts/draw_pictures.py [--check]`."""

import sys
from pathlib import Path

from rightsizer_cli.output.figures import picture
from rightsizer_cli.output.plan_figure import plan_figure
from rightsizer_cli.page.response import respond

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
    response = respond(QUESTION, calibrate=False)
    assert response.plan is not None, response
    plan = response.plan
    return {"plan.svg": picture(lambda: plan_figure(plan), "svg")}


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
