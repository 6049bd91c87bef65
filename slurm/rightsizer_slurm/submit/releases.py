"""The daemon's rounds of releases: jobs with a size, jobs that wait too long, and at the end all of them."""

import logging
import threading
import time
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rightsizer_api.untrusted_text import one_line
from rightsizer_slurm.cluster.backends import Backend
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.submit.held_jobs import adopt, release_held_jobs
from rightsizer_slurm.submit.ticket_store import TicketStore, steady_s
from rightsizer_slurm.submit.unsized_jobs import release_unsized
from rightsizer_telemetry.names import SLURM

_LOG = logging.getLogger("rightsizer.slurm")
_UNSIZED_EVERY_S = 60.0
_SUBMITS_S = 3.0  # a job appears so long after the plugin has its response
_LAST_POLLS = 6


class Releases(Collector):
    """The daemon's handling of held jobs, and its metrics. No fault ends the rounds."""

    def __init__(
        self,
        state: TicketStore,
        slurm: Slurm,
        backend: Backend,
        site: SiteConfig,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_s,
    ) -> None:
        """`clock` is Slurm's, `steady` that of the tickets."""
        self._state, self._slurm, self._backend = state, slurm, backend
        self._site, self._clock, self._steady = site, clock, steady
        self._unsized_s = self._done_s = 0.0
        self._since_s = steady()
        self._unsized_every_s = site.refresh_s if site.waits else _UNSIZED_EVERY_S
        self._failures = 0
        self._lock = threading.Lock()  # the last round waits for the one before

    def round(self) -> None:
        """One round; what fails is tried again in the next."""
        with self._lock:
            self._round()

    def _round(self) -> None:
        self._state.save()
        try:
            self._release()
        except SlurmError as error:
            _LOG.warning("held jobs wait: %s", one_line(str(error)))
            self._failures += 1
        except Exception:  # one odd job or line of Slurm's must not end the rounds
            _LOG.exception("held jobs wait")
            self._failures += 1
        else:
            self._done_s = self._clock()
        self._state.save()

    def _release(self) -> None:
        now_s = self._steady()
        held = release_held_jobs(
            self._state, self._slurm, self._backend, site=self._site, now_s=now_s, since_s=self._since_s
        )
        for result in held:
            _LOG.info("job %s, ticket %s: %s", result.job_id, result.ticket, one_line(result.text))
        if now_s - self._unsized_s >= self._unsized_every_s:
            self._unsized_s = now_s
            self._without_ticket(now_s)

    def _without_ticket(self, now_s: float) -> None:
        """Held jobs without a ticket: those whose request is known get one, others are released in time."""
        jobs = self._backend.jobs()
        adopt(self._state, jobs, now_s=now_s)
        limit_s = self._site.hold_limit_s
        reason = f"held for {limit_s:g} s without a ticket of ours"
        released = release_unsized(
            self._slurm,
            jobs,
            self._site,
            reason=reason,
            held_s=limit_s,
            except_for={ticket.job_id for ticket in self._state.tickets() if ticket.job_id},
            now_s=self._clock(),
        )
        for job_id in released:
            _LOG.warning("job %d: its hold ended without a size, %s", job_id, reason)

    def end(self) -> None:
        """The last round: a job whose size is known gets it, the others that may run unsized are released."""
        self.round()
        recent_s = self._steady() - _SUBMITS_S
        for _ in range(_LAST_POLLS):
            try:
                release_all(self._slurm, self._backend, self._site, "rightsizer was stopped")
            except SlurmError as error:
                _LOG.error("jobs stay held: %s", one_line(str(error)))
                return
            if not any(t.job_id is None and t.made_s > recent_s for t in self._state.tickets()):
                return
            time.sleep(_SUBMITS_S / _LAST_POLLS)

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics."""
        values = {
            "rightsizer_slurm_held_jobs": float(len(self._state.tickets())),
            "rightsizer_slurm_release_timestamp_seconds": self._done_s,
        }
        for name, value in values.items():
            yield GaugeMetricFamily(name, SLURM[name], value=value)
        failures = "rightsizer_slurm_release_failures_total"
        yield CounterMetricFamily(failures.removesuffix("_total"), SLURM[failures], value=self._failures)


def release_all(slurm: Slurm, backend: Backend, site: SiteConfig, reason: str) -> None:
    """End every hold of a job that may run unsized. SlurmError if Slurm is unavailable."""
    for job_id in release_unsized(slurm, backend.jobs(), site, reason=reason):
        _LOG.warning("job %d: its hold ended without a size, %s", job_id, reason)
