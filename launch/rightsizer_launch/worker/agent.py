"""The agent for training scripts: `import rightsizer_launch.agent as agent`. A no-op without rightsizer.

    agent.start(step=step, tokens=tokens)       # after init_process_group and loading the checkpoint
    while tokens < agent.target_tokens(default):
        with agent.waiting_for_data():          # optional: separates a slow loader from slow GPUs
            batch = next(batches)
        ...                                     # one optimizer step
        agent.step(tokens=batch_tokens, loss=loss)
        if agent.should_checkpoint():
            save(path)
            agent.checkpointed(path)
        if agent.should_stop():
            break
    else:
        agent.finish()

The checkpoint contract: SIGTERM or SIGUSR1 on any rank sets a flag. `step` all-reduces the flag, so all ranks
see it at the same step boundary: `should_checkpoint` becomes true on all of them, then `should_stop`. A rank
that exits alone would leave the others waiting in a collective. The reduction uses gloo and waits for no GPU.
"""

import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rightsizer_engine.values import immutable
from rightsizer_launch.worker import process_end, progress
from rightsizer_launch.worker.metrics import TrainMetrics, serve
from rightsizer_launch.worker.peak_memory import max_peak_bytes, should_measure


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


@dataclass(slots=True)
class _State:
    """The agent's state between calls; one per process."""

    stop_requested: bool = False
    stop: bool = False
    due: bool = False
    started: bool = False
    saved: bool = False
    step: int = 0
    tokens: float = 0.0
    loss: float | None = None
    step_began_s: float = 0.0
    checkpoint_s: float = 0.0
    waited_s: float | None = None
    rate: float = 0.0
    since: int = 0
    group: Any = None
    metrics: TrainMetrics | None = None
    server: Any = field(default=None, repr=False)
    reporter: object = None
    agrees: bool = True


_state = _State()


def active() -> bool:
    """Whether rightsizer started this process."""
    return progress.ENV_RUN_DIRECTORY in os.environ


def layout() -> JobLayout:
    """The layout to build, from the environment; plain data parallelism by default."""

    def number(name: str, default: int = 1) -> int:
        return int(os.environ.get(f"RIGHTSIZER_{name}", default))

    tp, pp, cp = number("LAYOUT_TP"), number("LAYOUT_PP"), number("LAYOUT_CP")
    return JobLayout(
        dp=max(1, _world() // (tp * pp * cp)),
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
    return _home() / progress.CHECKPOINTS if active() else Path(default)


def start(*, step: int = 0, tokens: float = 0.0, reporter: object = None, agrees: bool = True) -> bool:
    """Report the first step. Every rank calls it after init_process_group.

    False if the caller must not report: without rightsizer, or if another `reporter` of this process (a
    callback, an observed stack; None is the script itself) started before. A step is never counted twice.
    Only one rank calls it if it `agrees` with no other: it reports steps, and neither saves nor stops.
    """
    taken = _state.started and not reports(reporter) and (_state.agrees or not agrees)
    if taken or not active():
        return False
    _state.reporter, _state.agrees = reporter, agrees
    _state.started, _state.step, _state.tokens = True, step, tokens
    outcome = os.environ.get(progress.ENV_OUTCOME)
    if outcome:  # left by workers of this agent that stopped before a restart
        Path(outcome).unlink(missing_ok=True)
    _state.step_began_s = _state.checkpoint_s = time.monotonic()
    if agrees:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, _request_stop)
        process_end.keep_signals_from_children()
        _state.group = _control_group()
    pids, restarts = _gather(os.getpid()), max(_gather(progress.restarts()))
    if _leads():
        _serve(restarts=restarts)
        _write("start", pids=pids, layout=asdict(layout()))
    return True


def reports(reporter: object = None) -> bool:
    """Whether `reporter` reports the training of this process: the first one that started."""
    return _state.started and _state.reporter is reporter


def step(*, tokens: float, loss: float | None = None, steps: int = 1) -> None:
    """Report an optimizer step: `tokens` of the whole job, `loss` of this rank (the mean is recorded).

    Every rank calls it at the same step boundary. Here the ranks agree whether to stop or to save. `steps`
    optimizer steps of `tokens` each may be reported at once.
    """
    if not _state.started:
        return
    now_s, after_s = time.monotonic(), progress.checkpoint_after_s(saved=_state.saved)
    due = _state.agrees and _rank() == 0 and now_s - _state.checkpoint_s >= after_s
    requested, measured = float(_state.stop_requested), float(loss is not None)
    stop, save, total, ranks = _reduce([requested, float(due), float(loss or 0.0), measured])
    now_s = time.monotonic()
    step_s, _state.step_began_s = (now_s - _state.step_began_s) / steps, now_s
    _state.step += steps
    _state.tokens += tokens * steps
    _state.loss = total / ranks if ranks else None
    _state.stop, _state.due = stop > 0, save > 0 or stop > 0
    _state.since += 1
    peak_bytes = max_peak_bytes(_state.group) if should_measure(_state.since) else None
    rate = tokens / max(step_s, 1e-9)
    _state.rate = rate if not _state.rate else 0.8 * _state.rate + 0.2 * rate
    progress.note_step(_state.step)
    if _leads():
        _write("step", step_s=step_s, peak_bytes=peak_bytes, data_wait_s=_state.waited_s)
        _observe(tokens=tokens, step_s=step_s)
        _enter("checkpoint" if _state.due else "training")
    _state.waited_s = None if _state.waited_s is None else 0.0


@contextlib.contextmanager
def waiting_for_data() -> Iterator[None]:
    """Measure the wait for data, which separates slow input from slow GPUs. Rank 0's value counts."""
    began_s = time.monotonic()
    try:
        yield
    finally:
        took_s = time.monotonic() - began_s
        _state.waited_s = (_state.waited_s or 0.0) + took_s
        if _state.metrics is not None:
            _state.metrics.spend(data_wait=took_s)


@contextlib.contextmanager
def evaluating() -> Iterator[None]:
    """Mark the block as evaluation: idle GPUs and no new tokens are expected."""
    _enter("evaluation")
    try:
        yield
    finally:
        _state.step_began_s = time.monotonic()
        _enter("training")


def should_checkpoint() -> bool:
    """Whether to save now: the interval has passed or a stop was requested. The same on every rank."""
    return _state.due


def should_stop() -> bool:
    """Whether to leave the training loop now. The same on every rank."""
    if _state.stop and not _state.stop_requested and progress.ENV_RESTART_LIMIT in os.environ:
        atexit.register(_exit_for_restart)
    return _state.stop


def checkpointed(path: str | Path) -> None:
    """Report that the checkpoint at `path` is complete. Every rank calls it after the save's barrier."""
    if not _state.started:
        return
    now_s = time.monotonic()
    took_s = now_s - _state.step_began_s
    _state.due = False
    _state.saved = True
    _state.checkpoint_s = _state.step_began_s = now_s
    if _state.metrics is not None:
        _state.metrics.spend(checkpoint=took_s)
        _state.metrics.enter("training")
        _state.metrics.set(checkpoint_timestamp_seconds=time.time(), checkpoint_position_tokens=_state.tokens)
    if _rank() == 0:
        _write("checkpoint", path=str(path))
    outcome = os.environ.get(progress.ENV_OUTCOME)
    if _state.stop and outcome:
        Path(outcome).write_text("stopped\n")


def finish() -> None:
    """Report that the training is complete."""
    if not _state.started or (_state.agrees and int(os.environ.get("LOCAL_RANK", "0")) != 0):
        return
    if _leads():
        _write("finish")
    done = {"step": _state.step, "tokens": _state.tokens, "loss": _state.loss, "time": time.time()}
    progress.write_json(_home() / progress.DONE, done)


def _exit_for_restart() -> None:
    """Exit as a failure so that torchrun restarts this worker: another pod was asked to stop.

    It must not wait for that pod in torchrun's exit barrier. The restart monitor does not count this restart.
    """
    if os.environ.get("LOCAL_RANK", "0") == "0":
        directory = Path(os.environ[progress.ENV_OUTCOME]).parent  # the run directory may be shared by nodes
        with (directory / progress.VOLUNTARY_RESTARTS).open("ab", buffering=0) as file:
            file.write(b".")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(progress.EXIT_STOPPED)


def _home() -> Path:
    return Path(os.environ[progress.ENV_RUN_DIRECTORY])


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _leads() -> bool:
    """Whether this process writes the job's records."""
    return not _state.agrees or _rank() == 0


def _world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _request_stop(_number: int, _frame: FrameType | None) -> None:
    _state.stop_requested = True


def _control_group() -> Any:
    """A gloo group for the flags: the default group where that is gloo; None where there is one process."""
    if _world() == 1:
        return None
    import torch.distributed as dist  # only where a job is distributed

    return dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")


def _reduce(values: list[float]) -> list[float]:
    """Element-wise sum over all ranks."""
    if _state.group is None:
        return values
    import torch

    message = torch.tensor(values, dtype=torch.float64)
    torch.distributed.all_reduce(message, group=_state.group)
    summed: list[float] = message.tolist()
    return summed


def _gather(value: int) -> tuple[int, ...]:
    """The workers' values by rank, as sums of one-hot vectors; this one's only if it agrees with none."""
    if not _state.agrees:
        return (value,)
    return tuple(int(v) for v in _reduce([float(value) * (rank == _rank()) for rank in range(_world())]))


def _write(event: str, **more: Any) -> None:
    record = progress.Record(
        event=event,
        time=time.time(),
        uptime_s=time.monotonic(),
        attempt=int(os.environ.get(progress.ENV_ATTEMPT, "1")),
        restart=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        world=_world(),
        step=_state.step,
        tokens=_state.tokens,
        loss=_state.loss,
        tokens_per_s=_state.rate,
        **more,
    )
    progress.append(_home() / progress.PROGRESS, record)


def _serve(*, restarts: int) -> None:
    port = os.environ.get(progress.ENV_METRICS_PORT)
    if not port:
        return
    _state.metrics = TrainMetrics()
    _state.metrics.set(
        workers=_world(),
        restarts=restarts,
        target_tokens=target_tokens(0.0),
        position_tokens=_state.tokens,
        step=_state.step,
    )
    _enter("recovery" if restarts else "startup")
    address = os.environ.get(progress.ENV_METRICS_ADDRESS, "127.0.0.1")
    try:
        _state.server = serve(_state.metrics, port=int(port), address=address)
    except OSError as error:  # the port is taken; the training continues without metrics
        sys.stderr.write(f"rightsizer: no metrics on {address}:{port}: {error}\n")


def _enter(phase: str) -> None:
    if _state.metrics is not None:
        _state.metrics.enter(phase)


def _observe(*, tokens: float, step_s: float) -> None:
    if _state.metrics is None:
        return
    _state.metrics.observe(tokens=tokens, step_s=step_s)
    _state.metrics.set(position_tokens=_state.tokens, step=_state.step, tokens_per_second=_state.rate)
    if _state.loss is not None:
        _state.metrics.set(loss=_state.loss)


if active() and "TORCHELASTIC_RUN_ID" in os.environ:
    process_end.guard()
