"""Which checkpoint a stack resumes from: the newest one that is complete."""

import json
from collections.abc import Callable
from pathlib import Path

__all__ = ["newest_checkpoint", "newest_dcp_checkpoint"]


def newest_checkpoint(directory: str | Path) -> str | None:
    """The newest complete checkpoint-N of a Trainer's output directory, as `resume_from_checkpoint` takes it.

    Trainer writes trainer_state.json after the weights, the optimizer and the scheduler: a checkpoint without
    it, or with half of it, is not complete.
    """
    return _newest(directory, "checkpoint-", _is_complete)


def newest_dcp_checkpoint(directory: str | Path) -> str | None:
    """The newest complete step-N of torch.distributed.checkpoint, which writes .metadata last."""
    return _newest(directory, "step-", lambda checkpoint: (checkpoint / ".metadata").is_file())


def _newest(directory: str | Path, prefix: str, is_complete: Callable[[Path], bool]) -> str | None:
    steps = {path: path.name.removeprefix(prefix) for path in Path(directory).glob(f"{prefix}*")}
    found = [path for path, step in steps.items() if step.isdigit()]
    ordered = sorted(found, key=lambda path: int(steps[path]), reverse=True)
    return next((str(path) for path in ordered if is_complete(path)), None)


def _is_complete(checkpoint: Path) -> bool:
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(state, dict) and bool(state.get("global_step") == int(checkpoint.name[11:]))
