"""Which checkpoint a stack resumes from: the newest one that is complete."""

import json
from pathlib import Path

__all__ = ["newest_checkpoint"]


def newest_checkpoint(directory: str | Path) -> str | None:
    """The newest complete checkpoint-N of a Trainer's output directory, as `resume_from_checkpoint` takes it.

    Trainer writes trainer_state.json after the weights, the optimizer and the scheduler: a checkpoint without
    it, or with half of it, is not complete.
    """
    found = [path for path in Path(directory).glob("checkpoint-*") if path.name[11:].isdigit()]
    ordered = sorted(found, key=lambda path: int(path.name[11:]), reverse=True)
    return next((str(path) for path in ordered if _is_complete(path)), None)


def _is_complete(checkpoint: Path) -> bool:
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(state, dict) and bool(state.get("global_step") == int(checkpoint.name[11:]))
