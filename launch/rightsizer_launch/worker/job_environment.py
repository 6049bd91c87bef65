"""A worker's job, from its environment: layout, model, tokens, folders, rank."""

import os
from pathlib import Path

from rightsizer_engine.values import immutable
from rightsizer_launch.worker import progress


@immutable
class JobLayout:
    """The layout of the current world; `dp` follows from its actual size.

    `micro_batch` counts sequences per forward pass; a batch size of 0 is not configured.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    sharding: str = "none"
    micro_batch: int = 1
    recompute: str = "none"
    global_batch_sequences: int = 0
    sequence_tokens: int = 0


def active() -> bool:
    """Whether rightsizer started this process."""
    return progress.ENV_RUN_DIRECTORY in os.environ


def layout() -> JobLayout:
    """The layout to build, from the environment; plain data parallelism by default."""

    def number(name: str, default: int = 1) -> int:
        return int(os.environ.get(f"RIGHTSIZER_{name}", default))

    tp, pp, cp = number("LAYOUT_TP"), number("LAYOUT_PP"), number("LAYOUT_CP")
    return JobLayout(
        dp=max(1, world_size() // (tp * pp * cp)),
        tp=tp,
        pp=pp,
        vpp=number("LAYOUT_VPP"),
        cp=cp,
        ep=number("LAYOUT_EP"),
        sharding=os.environ.get("RIGHTSIZER_LAYOUT_SHARDING", "none"),
        micro_batch=number("LAYOUT_MICRO_BATCH"),
        recompute=os.environ.get("RIGHTSIZER_LAYOUT_RECOMPUTE", "none"),
        global_batch_sequences=number("GLOBAL_BATCH_SEQUENCES", 0),
        sequence_tokens=number("SEQUENCE_TOKENS", 0),
    )


def model() -> dict[str, int]:
    """The model's dimensions in the plan (layers, hidden, heads, ...); empty without a plan."""
    prefix = "RIGHTSIZER_MODEL_"
    return {
        name[len(prefix) :].lower(): int(value)
        for name, value in os.environ.items()
        if name.startswith(prefix)
    }


def target_tokens(default: float) -> float:
    """Tokens of the whole training: the plan's, else `default`."""
    return float(os.environ.get("RIGHTSIZER_TOKENS", default))


def checkpoint_directory(default: str | Path) -> Path:
    """The checkpoint directory: the plan's, else one in the run's directory, else `default`."""
    given = os.environ.get(progress.ENV_CHECKPOINT_PATH)
    if given:
        return Path(given)
    return run_directory() / progress.CHECKPOINTS if active() else Path(default)


def run_directory() -> Path:
    """The run's directory. Only a process that rightsizer started has one."""
    return Path(os.environ[progress.ENV_RUN_DIRECTORY])


def rank() -> int:
    """This process's rank in the job."""
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int:
    """This process's rank on its node."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def world_size() -> int:
    """The number of workers."""
    return int(os.environ.get("WORLD_SIZE", "1"))
