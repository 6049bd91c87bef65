"""A job of Slurm, whichever backend read it."""

import re
from collections.abc import Iterator

from rightsizer_engine.values import immutable

PENDING = "PENDING"
RUNNING = "RUNNING"
HELD = ("JobHeldUser", "JobHeldAdmin")
"""State reasons of a held job."""

_NOTE = re.compile(r" ?\[rightsizer/1 [^\[\]]*\]")
_DECISION = re.compile(r"\[rightsizer/1 (nodes=[^\[\]|]*)")
_ROUND = str.maketrans("[]", "()")
_LIVE = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD")


@immutable
class SlurmJob:
    """One job. `nodes` and `gpus` (of all nodes) are allocated, or requested while the job is pending.

    `states` is Slurm's base state and its flags (RUNNING, COMPLETING). Times are seconds since the epoch, 0
    if unknown. `special` is "array" or "het" for jobs of several
    parts, which are never changed. `batch` is False for jobs of salloc and srun, where a terminal waits.
    """

    job_id: int
    name: str = ""
    user: str = ""
    user_id: int = 0
    account: str = ""
    states: tuple[str, ...] = ()
    reason: str = ""
    partition: str = ""
    nodes: int = 0
    node_list: str = ""
    batch_host: str = ""
    gpus: int = 0
    gpu_type: str = ""
    comment: str = ""
    admin_comment: str = ""
    submitted_s: float = 0.0
    started_s: float = 0.0
    deadline_s: float = 0.0
    restarts: int = 0
    requeue: bool = False
    priority: int = 0
    special: str = ""
    batch: bool = True

    @property
    def state(self) -> str:
        """The base state."""
        return self.states[0] if self.states else ""

    @property
    def pending(self) -> bool:
        """Whether it is pending, and not still completing a run."""
        return self.states[:1] == (PENDING,) and "COMPLETING" not in self.states

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.state == RUNNING and "COMPLETING" not in self.states

    @property
    def held(self) -> bool:
        """Whether it is held."""
        return self.pending and (self.priority == 0 or self.reason in HELD)

    @property
    def held_by_admin(self) -> bool:
        """Whether an administrator holds it."""
        return self.held and self.reason == HELD[1]

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state in _LIVE


def gres_gpus(text: str) -> tuple[str, int]:
    """Type and number of the GPUs in a gres text. Several types are added up under the name of the first."""
    items = gpu_items(text)
    return next((kind for kind, _ in items if kind), ""), sum(count for _, count in items)


def gpu_items(text: str) -> tuple[tuple[str, int], ...]:
    """Type and number of each item of GPUs: gpu:h100:8(S:0-1), gres/gpu:a100=4, gres:gpu:2, gpu.

    Other gres are ignored.
    """
    items = []
    for parts in _gres_items(text):
        if parts[0] != "gpu":
            continue
        count = parts[-1] if len(parts) > 1 and parts[-1].isdigit() else "1"
        named = [part for part in parts[1:] if part and not part.isdigit()]
        items.append((named[0] if named else "", int(count)))
    return tuple(items)


def other_gres(text: str) -> tuple[str, ...]:
    """The items that are neither GPUs nor shares of them: nvme:1 of gres:gpu:2,gres:nvme:1."""
    return tuple(
        ":".join(parts) for parts in _gres_items(text) if parts[0] not in {"", "gpu", "mps", "shard"}
    )


def _gres_items(text: str) -> Iterator[list[str]]:
    """The parts of each item, without the prefix that a release of Slurm puts before it."""
    for item in _without_brackets(text).split(","):
        yield item.strip().removeprefix("gres/").removeprefix("gres:").replace("=", ":").split(":")


def decision_of(admin_comment: str) -> str:
    """The size that rightsizer has noted in an AdminComment; empty if it sized nothing."""
    match = _DECISION.search(admin_comment)
    return match[1].strip() if match else ""


def noted(admin_comment: str, note: str) -> str:
    """An AdminComment with `note` in place of an earlier note of rightsizer; other programs' text stays."""
    others = _NOTE.sub("", admin_comment).strip()
    return f"{others} [rightsizer/1 {note.translate(_ROUND)}]".strip()


def _without_brackets(text: str) -> str:
    """The text without its (...) parts, whose commas are not separators."""
    kept, depth = [], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter != ")":
            kept.append(letter)
    return "".join(kept)
