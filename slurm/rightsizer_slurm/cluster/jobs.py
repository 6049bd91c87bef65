"""A job as Slurm tells of it, whichever way it was read."""

from rightsizer.values import immutable

__all__ = ["HELD", "PENDING", "RUNNING", "Job", "gres_gpus"]

PENDING = "PENDING"
RUNNING = "RUNNING"
HELD = ("JobHeldUser", "JobHeldAdmin")
"""State reasons of a job that waits for a release."""

_LIVE = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD")


@immutable
class Job:
    """One job. `nodes` are those it has, or asks for while it waits; `gpus` likewise, over all nodes.

    `states` is Slurm's base state and its flags (RUNNING, COMPLETING). Moments are seconds since the epoch, 0
    where there is none yet; `time_limit_s` is None without a limit. `special` names what makes it a job of
    many parts ("array", "het"), which is never touched.
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
    tasks: int = 0
    cpus: int = 0
    gpus: int = 0
    gpu_type: str = ""
    comment: str = ""
    admin_comment: str = ""
    time_limit_s: float | None = None
    submitted_s: float = 0.0
    started_s: float = 0.0
    ends_s: float = 0.0
    restarts: int = 0
    requeue: bool = False
    priority: int = 0
    special: str = ""

    @property
    def state(self) -> str:
        """The base state."""
        return self.states[0] if self.states else ""

    @property
    def pending(self) -> bool:
        """Whether it waits, and is not on its way out of a run."""
        return self.states[:1] == (PENDING,) and "COMPLETING" not in self.states

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.state == RUNNING and "COMPLETING" not in self.states

    @property
    def held(self) -> bool:
        """Whether it waits for a release."""
        return self.pending and (self.priority == 0 or self.reason in HELD)

    @property
    def live(self) -> bool:
        """Whether it may still run."""
        return self.state in _LIVE


def gres_gpus(text: str) -> tuple[str, int]:
    """Type and number of the GPUs in a gres text: gpu:h100:8(S:0-1), gres/gpu:a100=4, gres:gpu:2, gpu.

    Several types in one text are added up under the first one's name. Other gres count as none.
    """
    kind, total = "", 0
    depth_free = _without_brackets(text)
    for item in depth_free.split(","):
        words = item.strip().removeprefix("gres/").removeprefix("gres:").replace("=", ":").split(":")
        if words[0] != "gpu":
            continue
        count = words[-1] if len(words) > 1 and words[-1].isdigit() else "1"
        named = [word for word in words[1:] if word and not word.isdigit()]
        kind = kind or (named[0] if named else "")
        total += int(count)
    return kind, total


def _without_brackets(text: str) -> str:
    """The text without (...) parts, whose commas separate nothing."""
    kept, depth = [], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter != ")":
            kept.append(letter)
    return "".join(kept)
