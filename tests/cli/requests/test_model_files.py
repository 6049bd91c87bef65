"""`--model` may be a folder, a file or an id in the local cache of the Hub."""

import json
from pathlib import Path

import pytest

from rightsizer_cli.main import execute
from rightsizer_cli.requests.flags import GoalFlags, HardwareFlags, JobFlags
from rightsizer_cli.requests.inputs import read
from rightsizer_cli.requests.model_files import config_of
from rightsizer_engine.errors import InputError

CONFIG = {
    "model_type": "newer",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128256,
}


def saved(folder: Path) -> Path:
    folder.mkdir(parents=True)
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIG))
    return file


def test_a_folder_is_sized_by_its_config_under_its_own_name(tmp_path):
    saved(tmp_path / "mine")
    _, request = read(
        None,
        JobFlags(model=str(tmp_path / "mine"), tokens="1B"),
        GoalFlags(deadline="3d"),
        HardwareFlags(gpu=["H100"]),
    )
    assert request.architecture.layers == 16
    assert request.architecture.name.endswith("mine")
    assert any("'newer' is unknown" in note for note in request.notes)


def test_a_file_is_its_own_config(tmp_path):
    file = saved(tmp_path / "mine")
    assert config_of(str(file)) == file


def test_an_id_is_found_in_the_cache_of_the_hub(tmp_path):
    file = saved(tmp_path / "hub" / "models--acme--newer-9B" / "snapshots" / "abc")
    assert config_of("acme/newer-9B", {"HF_HOME": str(tmp_path)}) == file
    assert config_of("acme/newer-9B", {"HF_HUB_CACHE": str(tmp_path / "hub")}) == file
    assert config_of("acme/other", {"HF_HOME": str(tmp_path)}) is None


def test_a_name_of_the_catalog_needs_no_cache(tmp_path):
    saved(tmp_path / "hub" / "models--meta-llama--Llama-3.1-8B" / "snapshots" / "abc")
    assert config_of("meta-llama/Llama-3.1-8B", {"HF_HOME": str(tmp_path)}) is None


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./nor/here"])
def test_a_path_without_a_config_is_one_error(name):
    with pytest.raises(InputError, match="--model"):
        config_of(name)


def test_a_folder_without_a_config_is_one_error(tmp_path):
    with pytest.raises(InputError, match=r"config\.json"):
        config_of(str(tmp_path))


def test_models_shows_a_model_of_this_machine(tmp_path, capsys):
    saved(tmp_path / "mine")
    assert execute(["models", str(tmp_path / "mine"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["layers"] == 16
    assert "unknown" in found["doubt"]
    assert execute(["models", str(tmp_path / "mine")]) == 0
    assert "1.498B" in capsys.readouterr().out
