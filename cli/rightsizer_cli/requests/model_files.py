"""The config.json that `--model` means: in a folder, in a file, or in the local cache of the Hub."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightsizer_api import with_config
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.errors import RightsizerError, UnknownNameError

_PATHS = ("/", "./", "../", "~")


def config_of(name: str, environ: Mapping[str, str] | None = None) -> Path | None:
    """The file; None for a catalog name and for an unknown one."""
    path = Path(name).expanduser()
    if name.startswith(_PATHS) or path.is_dir():
        return _in_folder(name, path)
    if _known(name):
        return None
    return _cached(name, os.environ if environ is None else environ)


def network(name: str) -> Architecture:
    """The network that `--model` would mean."""
    file = config_of(name)
    if file is None:
        return lookup.model(name)
    from rightsizer_engine.catalog.huggingface import from_config

    document: Any = with_config({"spec": {"model": {"configPath": str(file.absolute())}}}, Path())
    return from_config(document["spec"]["model"]["config"], name=name)


def _in_folder(name: str, path: Path) -> Path:
    file = path if path.is_file() else path / "config.json"
    if not file.is_file():
        remedy = "is a folder without config.json" if path.is_dir() else "no such file or folder"
        raise OptionError("--model", value=name, remedy=remedy)
    return file


def _known(name: str) -> bool:
    """Whether the catalog has the model under this very name, or refuses it by name."""
    try:
        return not lookup.model(name).doubt
    except UnknownNameError:
        return False
    except RightsizerError:
        return True


def _cached(name: str, environ: Mapping[str, str]) -> Path | None:
    """The config of the id's newest snapshot, as `huggingface_hub` lays its cache out."""
    owner, slash, model = name.partition("/")
    if not slash or not owner or not model or ".." in name or "/" in model:
        return None
    home = Path(environ.get("HF_HOME") or Path(environ.get("HOME", "~")) / ".cache" / "huggingface")
    cache = Path(environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    found = [
        file for file in cache.glob(f"models--{owner}--{model}/snapshots/*/config.json") if file.is_file()
    ]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)
