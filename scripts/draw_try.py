"""Write docs/try, the what-if page for a few requests: `python scripts/draw_try.py [--check]`."""

import functools
import sys
from pathlib import Path

from rightsizer_cli.output.figures import picture
from rightsizer_cli.output.plan_figure import plan_figure
from rightsizer_cli.page.render import asset, worked_html
from rightsizer_cli.page.response import respond

FOLDER = Path(__file__).parent.parent / "docs" / "try"
QUESTIONS = {
    "Pretrain 8B on 100B tokens in two weeks": (
        "index",
        {"model": "meta-llama/Llama-3.1-8B", "tokens": "100B", "deadline": "14d", "gpu": "H100"},
    ),
    "Pretrain 70B on 1T tokens in a month: H100 or H200": (
        "pretrain-70b",
        {"model": "meta-llama/Llama-3.1-70B", "tokens": "1T", "deadline": "30d", "gpu": "H100,H200"},
    ),
    "LoRA of 8B over 52,000 examples on one L40S": (
        "lora-8b",
        {"model": "meta-llama/Llama-3.1-8B", "method": "lora", "examples": "52k", "epochs": "3",
         "gpu": "L40S", "gpus": "1", "framework": "trl"},
    ),
    "405B in two days: no plan, and what would make it possible": (
        "no-plan",
        {"model": "meta-llama/Llama-3.1-405B", "tokens": "1T", "deadline": "2d", "gpu": "H100",
         "max_gpus": "4096"},
    ),
}  # fmt: skip


def drawn() -> dict[str, bytes]:
    """The files of the folder: one page for each question, its picture, and the style."""
    titles = {title: f"{name}.html" for title, (name, _) in QUESTIONS.items()}
    files = {"style.css": asset("style.css").encode()}
    for title, (name, query) in QUESTIONS.items():
        response = respond(query, calibrate=False)
        assert not response.error, response.error
        page = worked_html(title, response, picture=f"{name}.svg", others=titles)
        files[f"{name}.html"] = page.encode() + b"\n"
        if response.plan is not None:
            figure = functools.partial(plan_figure, response.plan)
            files[f"{name}.svg"] = picture(figure, "svg")
    return files


def main(arguments: list[str]) -> int:
    """Write the files, or with --check only compare; 1 if one is stale."""
    files = drawn()
    if "--check" not in arguments:
        FOLDER.mkdir(exist_ok=True)
        for name, content in files.items():
            (FOLDER / name).write_bytes(content)
        return 0
    here = {path.name: path.read_bytes() for path in FOLDER.glob("*")}
    stale = sorted(name for name in here.keys() | files.keys() if here.get(name) != files.get(name))
    for name in stale:
        sys.stderr.write(f"stale: docs/try/{name}; run make generate\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
