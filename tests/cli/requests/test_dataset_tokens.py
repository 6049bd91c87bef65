import json
import os

import pytest

from rightsizer_cli.requests.dataset_tokens import counted
from rightsizer_cli.requests.flags import HardwareFlags, JobFlags
from rightsizer_cli.requests.inputs import read
from rightsizer_engine.errors import InputError


def _written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content", "tokens"),
    [
        ("plain.txt", "x" * 400, 100),
        ("bytes.txt", "\u00e9" * 200, 100),
        ("one.jsonl", json.dumps({"text": "x" * 400}) + "\n", 100),
        ("chat.JSONL", '{"turns": [{"say": "1234"}, {"say": "5678"}], "id": 77}\n\n"9abc"\n', 3),
        ("short.txt", "x", 1),
    ],
)
def test_text_is_counted_at_four_bytes_a_token(tmp_path, name, content, tokens):
    assert counted(_written(tmp_path, name, content)).tokens == tokens


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("binary.txt", b"\x00\x01", "binary"),
        ("empty.txt", b"", "no text"),
        ("numbers.jsonl", b"[1, 2]\n", "no text"),
        ("cut.jsonl", b'{"a": "b"}\n{"a": ', "line 2 is not JSON"),
        ("latin.jsonl", b'"\xff"', "line 1 is not JSON"),
        ("deep.jsonl", b"[" * 100_000, "line 1 is not JSON"),
        ("long.jsonl", b"1" * (64 * 2**20 + 1), "line 1 is longer than 64 MiB"),
        ("table.csv", b"a,b", ".jsonl, .txt or .parquet"),
        ("fake.parquet", b"PAR1", "arquet"),
    ],
)
def test_a_file_that_is_no_data_set_is_one_error(tmp_path, name, content, why):
    with pytest.raises(InputError, match=r"--dataset: .*") as error:
        counted(_written(tmp_path, name, content))
    assert why in str(error.value)


def test_folders_pipes_devices_and_missing_files_are_refused_unread(tmp_path):
    (tmp_path / "folder.txt").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    for name in ("folder.txt", "pipe.jsonl", "zero.txt", "missing.txt"):
        with pytest.raises(InputError, match=r"not a regular file|cannot be read: no such file"):
            counted(tmp_path / name)


def test_a_plan_states_the_rule_and_counts_epochs(tmp_path):
    job = JobFlags(model="gpt2", dataset=_written(tmp_path, "books.txt", "x" * 400_000), epochs=3.0)
    plan, request = read(None, job, HardwareFlags(gpu=["H100"]))
    assert request.workload.tokens == 300_000
    assert plan.spec.workload.tokens == "300000"
    assert "books.txt holds 100k tokens: 400,000 bytes at 4 bytes a token" in request.notes[-1]
    assert request.notes[-1].endswith("3 epochs")


@pytest.mark.parametrize("rival", ["tokens", "examples"])
def test_a_data_set_excludes_other_counts(tmp_path, rival):
    job = JobFlags(model="gpt2", dataset=_written(tmp_path, "a.txt", "text"), **{rival: "2k"})
    with pytest.raises(InputError, match=f"give --dataset or --{rival}, not both"):
        read(None, job, HardwareFlags(gpu=["H100"]))
