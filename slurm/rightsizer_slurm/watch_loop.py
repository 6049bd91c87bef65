"""The monitor as a process: sweeps until it is told to end; Slurm away is waited out."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rightsizer_slurm.backend_commands import SlurmCommands
from rightsizer_slurm.backends import Backend, choose
from rightsizer_slurm.commands import Slurm, SlurmError, settings
from rightsizer_slurm.gpu_metrics import gpu_metrics
from rightsizer_slurm.journal import Journal
from rightsizer_slurm.metrics import SweepMetrics
from rightsizer_slurm.monitor import Monitor, Settings, alone
from rightsizer_slurm.text import one_line
from rightsizer_telemetry.client import Access

__all__ = ["BACKENDS", "Options", "backend_of", "run"]

BACKENDS = ("auto", "commands", "pyslurm")

_LOG = logging.getLogger("rightsizer.slurm.monitor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`state` is the journal's file, `textfile` where metrics go, `sweeps` how many; None: without end."""

    settings: Settings
    state: Path
    backend: str = "auto"
    prometheus: Access | None = None
    textfile: Path | None = None
    sweeps: int | None = None


def backend_of(wanted: str, slurm: Slurm) -> Backend:
    """The backend that fits this cluster."""
    from rightsizer_slurm.backend_pyslurm import backend as pyslurm  # noqa: PLC0415 -- imports GPL only if asked

    commands = SlurmCommands(slurm)
    return choose(wanted, commands=commands, pyslurm=lambda: pyslurm(slurm))


def run(options: Options, *, slurm: Slurm | None = None) -> int:
    """Sweep until SIGTERM or SIGINT, or as often as asked."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    slurm = slurm or Slurm()
    with alone(options.state):
        journal = Journal(options.state)
        backend = backend_of(options.backend, slurm)
        _LOG.info("watching through %s; force %s", backend.name, options.settings.force)
        metrics = gpu_metrics(options.prometheus, window_s=options.settings.tuning.least_window_s)
        monitor = Monitor(backend, journal, options.settings, slurm=slurm, metrics=metrics)
        try:
            _sweeps(monitor, options, SweepMetrics(cluster=cluster_name(slurm)), ended.wait)
        finally:
            journal.close()
    return 0


def cluster_name(slurm: Slurm) -> str:
    """slurm.conf's ClusterName; empty while nobody answers."""
    try:
        return settings(slurm).get("ClusterName", "")
    except SlurmError:
        return ""


def _sweeps(monitor: Monitor, options: Options, metrics: SweepMetrics, wait: Callable[[float], bool]) -> None:
    done = 0
    while options.sweeps is None or done < options.sweeps:
        began_s = time.time()
        try:
            lines = monitor.sweep()
            metrics.swept(lines, monitor.failures, at_s=began_s, took_s=time.time() - began_s)
        except SlurmError as error:
            metrics.failed(error.command)
            _LOG.warning("Slurm does not answer: %s", one_line(str(error)))
        if options.textfile is not None:
            metrics.write(options.textfile)
        done += 1
        if (options.sweeps is None or done < options.sweeps) and wait(options.settings.every_s):
            break
