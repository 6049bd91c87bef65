"""The monitor as a process of its own or in the daemon: sweeps until it is stopped.

It waits while Slurm is unavailable. Of several monitors with one state file only one runs; the
daemon's waits.
"""

import contextlib
import logging
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from prometheus_client import start_http_server
from prometheus_client.registry import Collector

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backends import Backend, choose
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError, settings
from rightsizer_slurm.monitor.gpu_metrics import gpu_metrics
from rightsizer_slurm.monitor.intent_log import IntentLog
from rightsizer_slurm.monitor.metrics import SweepMetrics
from rightsizer_slurm.monitor.monitor import Monitor, fault
from rightsizer_slurm.monitor.settings import MonitorOptions
from rightsizer_slurm.state_file import BusyError, alone

_LOG = logging.getLogger("rightsizer.slurm.monitor")


@immutable
class DaemonMetrics:
    """The daemon's metrics besides the monitor's own: verdicts so far, and its other metrics."""

    verdicts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    collector: Collector | None = None


_NO_DAEMON = DaemonMetrics()


def backend_of(wanted: str, slurm: Slurm) -> Backend:
    """The backend for this cluster."""
    from rightsizer_slurm.cluster.backend_pyslurm import backend as pyslurm  # noqa: PLC0415 -- imports GPL code only if chosen

    commands = SlurmCommands(slurm)
    return choose(wanted, commands=commands, pyslurm=lambda: pyslurm(slurm))


def run(options: MonitorOptions, *, slurm: Slurm | None = None) -> int:
    """Sweep until SIGTERM or SIGINT, or `options.sweeps` times."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    _watch(options, slurm or Slurm(), ended)
    return 0


def run_in_daemon(
    options: MonitorOptions,
    slurm: Slurm,
    ended: threading.Event,
    daemon: DaemonMetrics = _NO_DAEMON,
) -> None:
    """The daemon's monitor; it waits while another monitor runs or Slurm is unavailable."""
    logged = ""
    while not ended.is_set():
        try:
            _watch(options, slurm, ended, daemon)
        except BusyError as error:
            text = f"waits: {error}"
        except RightsizerError as error:
            text = f"cannot start, retrying: {error}"
        except Exception as error:  # a bug must not end the watch while the daemon lives
            text = f"ended and starts again: {fault(error)}"
        else:
            return
        if text != logged:
            _LOG.warning("the monitor %s", one_line(text))
            logged = text
        ended.wait(options.settings.every_s)


def _watch(
    options: MonitorOptions, slurm: Slurm, ended: threading.Event, daemon: DaemonMetrics = _NO_DAEMON
) -> None:
    with alone(options.state):
        log = IntentLog(options.state)
        try:
            backend = backend_of(options.backend, slurm)
            _LOG.info("backend %s, action level %s", backend.name, options.settings.level)
            metrics = gpu_metrics(options.prometheus, window_s=options.settings.tuning.least_window_s)
            monitor = Monitor(backend, log, options.settings, slurm=slurm, metrics=metrics)
            sweep_metrics = SweepMetrics(cluster=cluster_name(slurm), verdicts=daemon.verdicts)
            if daemon.collector is not None:
                sweep_metrics.registry.register(daemon.collector)
            with _served(options.metrics, sweep_metrics):
                sweeps(monitor, options, sweep_metrics, ended.wait)
        finally:
            log.close()


@contextlib.contextmanager
def _served(at: tuple[str, int] | None, metrics: SweepMetrics) -> Iterator[None]:
    """Serve the metrics at /metrics; InputError if the port is taken."""
    if at is None:
        yield
        return
    address, port = at
    try:
        server, thread = start_http_server(port, addr=address, registry=metrics.registry)
    except OSError as error:
        raise InputError(
            "metrics", value=f"{address}:{port}", remedy=f"{error.strerror}; choose another"
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def cluster_name(slurm: Slurm) -> str:
    """slurm.conf's ClusterName; empty while Slurm is unavailable."""
    try:
        return settings(slurm).get("ClusterName", "")
    except SlurmError:
        return ""


def _write(metrics: SweepMetrics, textfile: Path) -> None:
    try:
        metrics.write(textfile)
    except OSError as error:
        _LOG.warning("%s cannot be written: %s", textfile, error.strerror)


def sweeps(
    monitor: Monitor, options: MonitorOptions, metrics: SweepMetrics, wait: Callable[[float], bool]
) -> None:
    """Sweep until `wait` is true, or as often as the options say."""
    done = 0
    while options.sweeps is None or done < options.sweeps:
        began_s = time.time()
        try:
            lines = monitor.sweep()
            metrics.swept(lines, monitor.failures, at_s=began_s, took_s=time.time() - began_s)
        except SlurmError as error:
            metrics.failed(error.command)
            _LOG.warning("Slurm does not answer: %s", one_line(str(error)))
        except sqlite3.Error as error:  # a full disk: no command is given that is not stored first
            metrics.failed("state")
            _LOG.error("the state file cannot be used, no job is resized: %s", one_line(str(error)))
        if options.textfile is not None:
            _write(metrics, options.textfile)
        done += 1
        if (options.sweeps is None or done < options.sweeps) and wait(options.settings.every_s):
            break
