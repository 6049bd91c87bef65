"""scripts/refresh_outputs.py, which rewrites the outputs of commands in the documentation."""

import runpy
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "refresh_outputs.py"
HERE = runpy.run_path(str(SCRIPT))
refreshed, shown_commands, result_of = HERE["refreshed"], HERE["shown_commands"], HERE["result_of"]


def test_an_output_is_rewritten_and_its_omissions_are_kept():
    shown = "    $ rightsizer gpus L4\n    name  L5\n    ...\n    bf16_flop_per_s  1T\n    ...\nText."
    printed = ["    name  L4", "    memory  24 GiB", "    bf16_flop_per_s  121T", "    links  none"]
    new = refreshed(shown, {"rightsizer gpus L4": printed})
    assert new == shown.replace("L5", "L4").replace("1T", "121T")


def test_only_commands_with_the_same_output_for_every_reader_run():
    page = (
        "    $ rightsizer version\n    rightsizer 0.0.0\n\n    $ rightsizer run x\n    old\n"
        "    $ rightsizer plan --runs x.csv\n    old\n    $ rightsizer gpus\n\n"
        "    $ rightsizer estimate \\\n        --gpus 8\n    old\n"
    )
    assert [command for command, *_ in shown_commands(page)] == ["rightsizer estimate --gpus 8"]
    assert refreshed(page, {"rightsizer estimate --gpus 8": ["    new"]}) == page[: -len("old\n")] + "new\n"


def test_a_shown_command_prints_its_lines_or_the_first_of_them():
    whole, picture = result_of("rightsizer gpus L4")
    assert whole[0].split() == ["name", "L4"]
    assert result_of("rightsizer gpus L4 | head -1") == (whole[:1], b"")
    assert len(whole) > 1
    assert not picture


def test_a_check_reports_an_outdated_output_and_leaves_it(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("    $ rightsizer gpus L4\n    name  L5\n")

    def main(*options):
        command = [sys.executable, SCRIPT, *options, page]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    checked = main("--check")
    assert checked.returncode == 1
    assert "page.md: out of date; run `make generate`" in checked.stdout
    assert "L5\n" in page.read_text()
    assert main().returncode == 0
    assert "L4\n" in page.read_text()
    assert main("--check").returncode == 0
