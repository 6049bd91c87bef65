"""scripts/refresh_outputs.py, which rewrites the outputs of commands in the documentation."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "refresh_outputs.py"
HERE = runpy.run_path(str(SCRIPT))
refreshed, main = HERE["refreshed"], HERE["main"]


def test_an_output_is_written_again_and_what_it_leaves_out_stays_left_out():
    shown = ["    $ rightsizer version", "    rightsizer 0.0.0", "", "    $ rightsizer run x", "    old"]
    assert (
        list(refreshed(shown)) == shown
    )  # the version is the commit's, and a run is no output of every reader
    gpu = [
        "    $ rightsizer gpus L4",
        "    name  L5",
        "    ...",
        "    bf16_flop_per_s  1T",
        "    ...",
        "Text.",
    ]
    new = list(refreshed(gpu))
    assert [line.split()[0] for line in new] == ["$", "name", "...", "bf16_flop_per_s", "...", "Text."]
    assert new[1].split() == ["name", "L4"]


def test_a_check_tells_an_outdated_output_and_leaves_it(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("    $ rightsizer gpus L4\n    name  L5\n")
    assert main(["--check", str(page)]) == 1
    assert "page.md: out of date; run `make outputs`" in capsys.readouterr().out
    assert "L5\n" in page.read_text()
    assert main([str(page)]) == 0
    assert main(["--check", str(page)]) == 0
