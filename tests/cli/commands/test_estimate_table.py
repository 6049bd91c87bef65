"""estimate --runs: every row once, in order, from its inputs alone."""

import csv
import io

import pytest

from rightsizer_cli.main import execute
from rightsizer_cli.output.predictions import COLUMNS, predict_rows
from rightsizer_cli.requests.runs_table import read_rows
from rightsizer_engine.errors import InputError

ROW = {
    "id": "A", "framework": "megatron-lm", "year": "2023", "model_name": "", "layers": "24", "hidden": "2048",
    "ffn_hidden": "8192", "heads": "16", "vocab": "50304", "seq_len": "2048", "gpu": "A100-SXM4-80GB",
    "gpus": "8",
    "dp": "8", "tp": "1", "pp": "1", "micro_batch": "2", "global_batch": "64", "precision": "bf16",
    "step_time_s": "1.0", "peak_memory_gib": "30", "note": "",
}  # fmt: skip
ROWS = [
    ROW,
    ROW | {"id": "B", "gpu": "abacus"},
    ROW | {"id": "C", "micro_batch": "several"},
    ROW | {"id": "A", "tp": "8"},
]


def as_csv(rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def run(tmp_path, text, *flags) -> list[dict[str, str]]:
    source, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    source.write_text(text)
    assert execute(["estimate", "--runs", str(source), "--out", str(out), *flags]) == 0
    return list(csv.DictReader(io.StringIO(out.read_text())))


def test_every_row_appears_once_and_in_order(tmp_path):
    out = run(tmp_path, as_csv(ROWS))
    assert [row["id"] for row in out] == ["A", "B", "C", "A"]
    assert [row["status"] for row in out] == ["ok", "unsupported", "unsupported", "ok"]
    assert tuple(out[0]) == COLUMNS
    assert "abacus" in out[1]["reason"]
    assert out[1]["pred_step_time_s"] == ""


def test_a_row_without_a_sequence_is_predicted_with_the_assumption_as_its_reason(tmp_path):
    (row,) = run(tmp_path, as_csv([ROW | {"id": "A", "seq_len": ""}]))
    assert (row["status"], row["reason"]) == ("ok", "seq_len not stated: 4,096 tokens")


def test_figures_are_consistent(tmp_path):
    row = {k: float(v) for k, v in run(tmp_path, as_csv(ROWS))[0].items() if k.startswith("pred")}
    assert row["pred_lo_s"] < row["pred_step_time_s"] < row["pred_hi_s"]
    assert row["pred_allocated_gib"] < row["pred_reserved_gib"] < row["pred_device_gib"] < 80
    assert row["pred_tokens_per_s_per_gpu"] == pytest.approx(
        64 * 2048 / 8 / row["pred_step_time_s"], rel=1e-4
    )


def test_notes_and_measurements_are_not_read():
    loud = ROW | {
        "note": "fp8, tp=8, GPU was an H100",
        "step_time_s": "99",
        "peak_memory_gib": "1",
        "mfu_pct": "7",
    }
    assert predict_rows([loud]) == predict_rows([ROW])


def test_neighbours_do_not_matter():
    assert predict_rows(ROWS)[0] == predict_rows([ROW])[0]


def test_an_unknown_framework_widens_the_interval(tmp_path):
    known, unknown = run(tmp_path, as_csv([ROW]))[0], run(tmp_path, as_csv([ROW]), "--framework-unknown")[0]
    width = [float(r["pred_hi_s"]) / float(r["pred_lo_s"]) for r in (known, unknown)]
    assert width[1] > width[0]


BAD = {
    "empty": ("", "lacks the columns id, seq_len, gpu"),
    "header only": ("id,seq_len,gpu\n", "has no rows"),
    "columns missing": ("id,gpu\n1,H100\n", "lacks the column seq_len"),
    "not a table": ("\x00\x01\x02", "--runs"),
    "prose": ("Dear reader,\nthis is no table.\n", "lacks the columns"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_wrong_table_is_one_error(text, message):
    with pytest.raises(InputError, match=message):
        read_rows(text, path="runs.csv")


@pytest.mark.parametrize("source", ["nowhere.csv", "."], ids=["missing", "folder"])
def test_an_unreadable_table_writes_nothing(source, tmp_path, capsys):
    assert execute(["estimate", "--runs", str(tmp_path / source), "--out", str(tmp_path / "out.csv")]) == 2
    assert "--runs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_leaves_nothing(tmp_path, capsys):
    source = tmp_path / "runs.csv"
    source.write_text(as_csv([ROW]))
    assert execute(["estimate", "--runs", str(source), "--out", str(tmp_path / "no" / "out.csv")]) == 2
    assert capsys.readouterr().err.startswith("error: --out: ")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("cell", ["nan", "-1", "1e400", "1e300", "0", "many", "999999999999"])
@pytest.mark.parametrize("column", ["layers", "gpus", "dp", "seq_len", "global_batch", "micro_batch"])
def test_absurd_cells_get_a_verdict_not_a_crash(column, cell):
    (row,) = predict_rows([ROW | {column: cell}])
    assert row["status"] in {"ok", "unsupported"}


def test_a_table_without_one_supported_row_exits_with_2(tmp_path, capsys):
    source, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    source.write_text("id,seq_len,gpu\na,2048,no such GPU\n", encoding="utf-8")
    assert execute(["estimate", "--runs", str(source), "--out", str(out)]) == 2
    assert "0 rows predicted, 1 unsupported" in capsys.readouterr().err
    assert "no such GPU" in out.read_text(encoding="utf-8")
