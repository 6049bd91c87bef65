"""The monitor's notices to a job's owner: in the AdminComment, by mail, in the job's output.

A notice about a decision is sent again after a day, any other once. One that cannot be sent stops nothing.
"""

import logging
import math
import shlex
import subprocess
from collections.abc import Callable

from rightsizer_api.untrusted_text import one_line
from rightsizer_slurm.cluster.backends import Backend
from rightsizer_slurm.cluster.jobs import SlurmJob, decision_of
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError, settings
from rightsizer_slurm.monitor.decide import ReportRow
from rightsizer_slurm.monitor.idle import Suspension
from rightsizer_slurm.monitor.inspection import InspectedJob
from rightsizer_slurm.monitor.intent_log import IntentLog
from rightsizer_slurm.monitor.settings import ActionLevel, MonitorSettings
from rightsizer_slurm.monitor.size_records import SizeRecord

_LOG = logging.getLogger("rightsizer.slurm.monitor")
_DAY_S = 86_400.0
_MAIL_TIMEOUT_S = 20.0


class Notices:
    """Sends notices. `failures` are the commands that failed since it was emptied."""

    def __init__(
        self,
        backend: Backend,
        intents: IntentLog,
        settings: MonitorSettings,
        *,
        slurm: Slurm,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._intents = intents
        self._settings = settings
        self._slurm = slurm
        self._clock = clock
        self.failures: list[str] = []

    def sized(self, monitored: InspectedJob) -> None:
        """The size that a running job got at submission.

        The script of `rightsizer sbatch` writes it to the job's output itself; a terminal has had its line.
        """
        job, noted = monitored.job, decision_of(monitored.job.admin_comment)
        size = one_line(noted or (monitored.run.decision if monitored.run else ""), 600)
        if not (size and job.running and self._is_new(job, "size", size)):
            return
        _LOG.info("job %s of %s: sized: %s", job.job_id, one_line(job.user), size)
        if not noted:
            self._annotate(job, one_line(size, 200))
        elif job.batch:
            self._print(job, f"rightsizer: sized: {size}")

    def rolled_back(self, job: SlurmJob, record: SizeRecord) -> None:
        """A size completed no step, and the job went back to another."""
        outcome = one_line(record.outcome)
        if not self._is_new(job, "back", f"{record.restart} {outcome}"):
            return
        _LOG.info("job %s: resize failed: %s", record.job_id, outcome)
        notice = one_line(f"resize failed: {outcome}", 200)
        self._annotate(job, notice)
        if self._mails:
            self._send(job, "resize failed", notice)

    def idle(self, row: ReportRow, suspension: Suspension) -> None:
        """The job is idle and will be suspended."""
        if self._is_new(row.job, "idle", suspension.warning):
            text = f"rightsizer: {row.decision.reason}; {suspension.warning}"
            self._print(row.job, one_line(text, 400))

    def decided(self, row: ReportRow, suspension: Suspension | None) -> None:
        """A decision other than to keep the size."""
        job, decision = row.job, row.decision
        withheld = f" ({decision.withheld})" if decision.withheld else ""
        warning = f"; {suspension.warning}" if suspension else ""
        notice = one_line(f"{decision.action}: {decision.reason}{withheld}{warning}", 200)
        if self._settings.annotate and self._is_new(job, "comment", notice, again_s=_DAY_S):
            self._annotate(job, notice)
        if self._mails and self._is_new(job, "mail", decision.action, again_s=_DAY_S):
            self._send(job, str(decision.action), "\n".join((notice, *decision.evidence)))

    @property
    def _mails(self) -> bool:
        return self._settings.level.allows(ActionLevel.MAIL)

    def _is_new(self, job: SlurmJob, channel: str, text: str, *, again_s: float = math.inf) -> bool:
        return self._intents.claim_notice(job.job_id, channel, text, again_s=again_s, now_s=self._clock())

    def _annotate(self, job: SlurmJob, note: str) -> None:
        if self._settings.annotate:
            self._try(job, lambda: self._backend.annotate(job.job_id, note))

    def _print(self, job: SlurmJob, text: str) -> None:
        self._try(job, lambda: self._backend.notify(job.job_id, text))

    def _send(self, job: SlurmJob, what: str, text: str) -> None:
        subject = f"rightsizer: job {job.job_id} {job.name}: {what}"
        self._try(job, lambda: mail(self._slurm, user=job.user, subject=subject, text=text))

    def _try(self, job: SlurmJob, send: Callable[[], None]) -> None:
        try:
            send()
        except SlurmError as error:
            self.failures.append(error.command)
            _LOG.warning("job %s: %s", job.job_id, one_line(str(error)))


def mail(slurm: Slurm, *, user: str, subject: str, text: str) -> None:
    """Mail a user as Slurm does, through the MailProg of slurm.conf if it names one. SlurmError if it fails.

    MailProg -s SUBJECT USER, the text on standard input.
    """
    program = settings(slurm).get("MailProg", "")
    if not program:
        return
    try:
        done = subprocess.run(
            [program, "-s", one_line(subject), user],
            check=False,
            capture_output=True,
            text=True,
            input=text + "\n",
            timeout=_MAIL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError("MailProg", f"{shlex.quote(program)}: {one_line(str(error))}") from None
    if done.returncode != 0:
        raise SlurmError("MailProg", one_line(done.stderr) or "failed silently", code=done.returncode)
