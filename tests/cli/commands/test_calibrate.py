"""calibrate: one's own measured runs in, corrected plans out; wrong input changes nothing."""

import csv
import io
import json

import pytest

from rightsizer_cli.main import execute

ROW = {
    "id": "A", "framework": "torchtitan", "year": "2025", "layers": "32", "hidden": "4096",
    "ffn_hidden": "14336", "heads": "32", "vocab": "128256", "seq_len": "8192", "gpu": "H100-SXM5-80GB",
    "gpus": "8", "dp": "8", "tp": "1", "pp": "1", "micro_batch": "1", "global_batch": "64",
    "precision": "bf16", "zero_stage_or_fsdp": "fsdp", "step_time_s": "15", "peak_memory_gib": "",
    "steps": "1400",
}  # fmt: skip
PLAN = [
    *("plan", "--model", "Llama 3.1 8B", "--tokens", "20B", "--deadline", "3d"),
    *("--gpu", "H100-SXM5-80GB", "--max-gpus", "32"),
]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The file of this test's measurements."""
    path = tmp_path / "data" / "calibration.json"
    monkeypatch.setenv("RIGHTSIZER_CALIBRATION", str(path))
    return path


def table(tmp_path, *rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(ROW))
    writer.writeheader()
    writer.writerows(rows)
    path = tmp_path / "mine.csv"
    path.write_text(text.getvalue())
    return str(path)


def answer(capsys, *args) -> dict:
    capsys.readouterr()
    assert execute([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_measured_table_changes_later_plans(tmp_path, kept, capsys):
    before = answer(capsys, *PLAN)
    assert execute(["calibrate", "--runs", table(tmp_path, ROW)]) == 0
    assert "1 measured run in" in capsys.readouterr().out
    after = answer(capsys, *PLAN)
    assert any("over 1,400 steps" in reason for reason in after["reasons"])
    assert not any("over 1,400 steps" in reason for reason in before["reasons"])
    ignored = answer(capsys, *PLAN, "--no-calibration")
    assert ignored["finishSeconds"] == before["finishSeconds"]


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_the_report_prints_the_measurements(tmp_path, kept, capsys, command):
    execute(["calibrate", "--runs", table(tmp_path, ROW)])
    assert execute([command, *PLAN[1:]]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "x predicted over 1,400 steps" in said
    assert "; ETA" in said


def test_an_estimate_of_one_layout_is_corrected_too(tmp_path, kept, capsys):
    asked = ["estimate", "--model", "Llama 3.1 8B", "--gpu", "H100-SXM5-80GB", "--gpus", "8"]
    before = answer(capsys, *asked)
    execute(["calibrate", "--runs", table(tmp_path, ROW | {"step_time_s": "60"})])
    assert answer(capsys, *asked)["stepSeconds"] > before["stepSeconds"]
    assert answer(capsys, *asked, "--no-calibration")["stepSeconds"] == before["stepSeconds"]


def test_the_same_table_twice_counts_once(tmp_path, kept, capsys):
    runs = table(tmp_path, ROW, ROW | {"id": "B"})
    first = answer(capsys, "calibrate", "--runs", runs)
    text = kept.read_text()
    second = answer(capsys, "calibrate", "--runs", runs)
    assert (first["runs"], first["added"], second["runs"], second["added"]) == (2, 2, 2, 0)
    assert kept.read_text() == text


def test_a_report_is_read_as_a_run_wrote_it(tmp_path, kept, capsys):
    execute(["calibrate", "--runs", table(tmp_path, ROW)])
    report = tmp_path / "report.json"
    report.write_text(
        json.dumps({"state": "done", "observations": json.loads(kept.read_text())["observations"]})
    )
    execute(["calibrate", "--reset"])
    assert answer(capsys, "calibrate", str(report))["added"] == 1
    assert answer(capsys, "calibrate", str(report))["runs"] == 1


def test_reset_forgets_and_show_shows(tmp_path, kept, capsys):
    execute(["calibrate", "--runs", table(tmp_path, ROW)])
    shown = answer(capsys, "calibrate", "--show")
    assert [(s["framework"], s["family"], s["steps"]) for s in shown["stacks"]] == [
        ("torchtitan", "sharded", 1400)
    ]
    assert answer(capsys, "calibrate", "--reset")["runs"] == 0
    assert answer(capsys, "calibrate", "--show")["stacks"] == []


def test_a_file_of_ones_own_leaves_the_default_alone(tmp_path, kept):
    mine = tmp_path / "mine.json"
    assert execute(["calibrate", "--runs", table(tmp_path, ROW), "--file", str(mine)]) == 0
    assert mine.exists()
    assert not kept.exists()


def test_rows_that_cannot_be_used_are_counted_and_the_first_is_named(tmp_path, kept, capsys):
    rows = (ROW, ROW | {"id": "B", "gpu": "abacus"}, ROW | {"id": "C", "step_time_s": ""})
    assert execute(["calibrate", "--runs", table(tmp_path, *rows)]) == 0
    said = capsys.readouterr().out
    assert "2 rows skipped" in said
    assert "abacus" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a run report"),
        ('{"observations": []}', "no measured steps"),
        ('{"observations": [{"run": "a"}]}', "observations[0]"),
    ],
    ids=["missing", "broken", "deep", "list", "empty", "wrong"],
)
def test_a_wrong_report_is_one_line_and_changes_nothing(tmp_path, kept, capsys, content, words):
    execute(["calibrate", "--runs", table(tmp_path, ROW)])
    before, path = kept.read_text(), tmp_path / "report.json"
    if content is not None:
        path.write_text(content)
    capsys.readouterr()
    assert execute(["calibrate", str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert kept.read_text() == before


def test_a_wrong_calibration_file_stops_a_plan_with_one_line(kept, capsys):
    kept.parent.mkdir()
    kept.write_text("nonsense")
    assert execute(PLAN) == 2
    assert "is no calibration file" in capsys.readouterr().err
    assert execute([*PLAN, "--no-calibration"]) == 0


@pytest.mark.parametrize("args", [[], ["--show", "--reset"], ["x.json", "--reset"]], ids=str)
def test_it_does_one_thing_at_a_time(kept, args):
    assert execute(["calibrate", *args]) == 2


@pytest.mark.parametrize(
    "content",
    [None, b"\xff", b"[" * 100_000, b"[]", b'{"schema": 1}'],
    ids=["folder", "binary", "deep", "list", "schema"],
)
def test_an_error_in_the_calibration_file_names_the_option(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    assert execute(["calibrate", "--show", "--file", str(tmp_path / "file" if content else tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: --file")
