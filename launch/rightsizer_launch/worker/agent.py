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

from rightsizer_launch.worker import process_end, progress
from rightsizer_launch.worker.agreement import control_group, gathered, reduced
from rightsizer_launch.worker.job_environment import (
    active,
    layout,
    local_rank,
    rank,
    run_directory,
    target_tokens,
    world_size,
)
from rightsizer_launch.worker.metrics import TrainMetrics, serve
from rightsizer_launch.worker.peak_memory import max_peak_bytes, should_measure


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
        _state.group = control_group()
    pids, restarts = _gathered(os.getpid()), max(_gathered(progress.restarts()))
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
    due = _state.agrees and rank() == 0 and now_s - _state.checkpoint_s >= after_s
    requested, measured = float(_state.stop_requested), float(loss is not None)
    stop, save, total, ranks = reduced(_state.group, [requested, float(due), float(loss or 0.0), measured])
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
    if rank() == 0:
        _write("checkpoint", path=str(path))
    outcome = os.environ.get(progress.ENV_OUTCOME)
    if _state.stop and outcome:
        Path(outcome).write_text("stopped\n")


def finish() -> None:
    """Report that the training is complete."""
    if not _state.started or (_state.agrees and local_rank() != 0):
        return
    if _leads():
        _write("finish")
    done = {"step": _state.step, "tokens": _state.tokens, "loss": _state.loss, "time": time.time()}
    progress.write_json(run_directory() / progress.DONE, done)


def _exit_for_restart() -> None:
    """Exit as a failure so that torchrun restarts this worker: another pod was asked to stop.

    It must not wait for that pod in torchrun's exit barrier. The restart monitor does not count this restart.
    """
    if local_rank() == 0:
        directory = Path(os.environ[progress.ENV_OUTCOME]).parent  # the run directory may be shared by nodes
        with (directory / progress.VOLUNTARY_RESTARTS).open("ab", buffering=0) as file:
            file.write(b".")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(progress.EXIT_STOPPED)


def _gathered(value: int) -> tuple[int, ...]:
    """The workers' values by rank; only this one's if it agrees with no other."""
    return gathered(_state.group, value) if _state.agrees else (value,)


def _leads() -> bool:
    """Whether this process writes the job's records."""
    return not _state.agrees or rank() == 0


def _request_stop(_number: int, _frame: FrameType | None) -> None:
    _state.stop_requested = True


def _write(event: str, **more: Any) -> None:
    record = progress.Record(
        event=event,
        time=time.time(),
        uptime_s=time.monotonic(),
        attempt=int(os.environ.get(progress.ENV_ATTEMPT, "1")),
        restart=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        world=world_size(),
        step=_state.step,
        tokens=_state.tokens,
        loss=_state.loss,
        tokens_per_s=_state.rate,
        **more,
    )
    progress.append(run_directory() / progress.PROGRESS, record)


def _serve(*, restarts: int) -> None:
    port = os.environ.get(progress.ENV_METRICS_PORT)
    if not port:
        return
    _state.metrics = TrainMetrics()
    _state.metrics.set(
        workers=world_size(),
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
