"""Which checkpoint a stack resumes from: the newest one that is complete."""

import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rightsizer_launch.worker.progress import write_json

PARTIAL = ".partial"
"""The end of a checkpoint's name until all of it is written."""
_SEAL = "rightsizer.json"
_KEPT = 2
_STEP = "step-"


def newest_checkpoint(directory: str | Path) -> str | None:
    """The newest complete checkpoint-N of a Trainer's output directory, as `resume_from_checkpoint` takes it.

    Trainer writes trainer_state.json after the weights, the optimizer and the scheduler: a checkpoint without
    it, or with half of it, is not complete.
    """
    return _newest(_by_step(directory, "checkpoint-"), _is_complete)


def newest_dcp_checkpoint(directory: str | Path) -> str | None:
    """The newest complete step-N of torch.distributed.checkpoint, which writes .metadata last."""
    return _newest(_by_step(directory, _STEP), lambda checkpoint: (checkpoint / ".metadata").is_file())


def newest_file(directory: str | Path, *, suffix: str = "") -> str | None:
    """The newest complete checkpoint that `checkpoint_file` named.

    A file must be a whole archive of torch.save, whose directory stands at its end; a folder must hold the
    files of its seal in their whole length.
    """
    return _newest(_by_step(directory, _STEP, suffix), _is_whole)


def checkpoint_file(directory: Path, step: int, suffix: str = "") -> Path:
    """The path for a callback's checkpoint of a step; its name ends in PARTIAL until it is complete."""
    return directory / f"{_STEP}{step}{suffix}"


def remove_older_files(directory: Path, *, suffix: str = "") -> None:
    """Keep the newest checkpoints of `checkpoint_file`."""
    for path in _by_step(directory, _STEP, suffix)[_KEPT:]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def seal(folder: Path, position: Mapping[str, float]) -> None:
    """Say that a folder is complete: its files' lengths, and where the training is. Rank 0 does so last."""
    files = {str(path.relative_to(folder)): path.stat().st_size for path in _files(folder)}
    write_json(folder / _SEAL, {"position": dict(position), "files": files})


def read_position(folder: str | Path) -> dict[str, float]:
    """The position that a folder was sealed with; empty if it was saved by the script."""
    document = _read(Path(folder))
    return {name: float(value) for name, value in document.get("position", {}).items()}


def _by_step(directory: str | Path, prefix: str, suffix: str = "") -> list[Path]:
    """Checkpoints by their step, the furthest first."""
    found = Path(directory).glob(f"{prefix}*")
    named = {path: path.name.removeprefix(prefix).removesuffix(suffix) for path in found}
    steps = {path: int(step) for path, step in named.items() if step.isdigit()}
    return sorted(steps, key=lambda path: steps[path], reverse=True)


def _newest(paths: list[Path], is_complete: Callable[[Path], bool]) -> str | None:
    return next((str(path) for path in paths if is_complete(path)), None)


def _is_complete(checkpoint: Path) -> bool:
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(state, dict) and bool(state.get("global_step") == int(checkpoint.name[11:]))


def _is_whole(path: Path) -> bool:
    if not path.is_dir():
        return zipfile.is_zipfile(path)
    files = _read(path).get("files", {})
    lengths = {str(part.relative_to(path)): part.stat().st_size for part in _files(path)}
    return bool(files) and files.items() <= lengths.items()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != _SEAL]


def _read(folder: Path) -> dict[str, dict[str, float]]:
    try:
        document = json.loads((folder / _SEAL).read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
