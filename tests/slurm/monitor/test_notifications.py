"""The monitor's notices about a job, by mail and in AdminComment: once, in one line, whatever users wrote."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rightsizer_engine.domain.reading import Reading
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.monitor.intent_log import IntentLog
from rightsizer_slurm.monitor.monitor import Monitor
from rightsizer_slurm.monitor.settings import ActionLevel, MonitorSettings

HOSTILE = "$(touch pwned) `touch pwned`; touch pwned\nBcc: all@example.org\r\x1b[2J' \" %n {x} Priority=0"
IDLE = Reading(
    window_s=1800.0, age_s=5.0, coverage=1.0, samples=60, gpu_busy_mean=0.0, gpu_busy_max=0.0,
    power_fraction=0.1,
)  # fmt: skip
JOB = SlurmJob(job_id=7, name=HOSTILE, user="ada", states=("RUNNING",), partition="h100", nodes=4, gpus=4)


class Idle(SlurmCommands):
    """Slurm's commands, with one job that is seen to be idle."""

    job_seen = JOB

    def jobs(self) -> tuple[SlurmJob, ...]:
        return (self.job_seen,)

    def job(self, job_id: int) -> SlurmJob | None:
        return self.job_seen if self.job_seen.job_id == job_id else None

    def cluster(self) -> SlurmCluster:
        return SlurmCluster()


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    """A scontrol with a MailProg; both record their arguments, one a line."""
    scontrol, mail = tmp_path / "scontrol", tmp_path / "mail"
    asked = f'[ "$1" = show ] && echo "MailProg = {mail}"'
    scontrol.write_text(f'#!/bin/sh\n{asked} || printf "%s\\n" "$@" >> {tmp_path}/updates\n')
    mail.write_text(f'#!/bin/sh\nfor each in "$@"; do printf "<%s>\\n" "$each"; done >> {tmp_path}/mails\n')
    for each in (scontrol, mail):
        each.chmod(0o755)
    return Slurm(folder=tmp_path)


def swept(
    slurm: Slurm,
    *,
    job: SlurmJob = JOB,
    level: ActionLevel = ActionLevel.MAIL,
    annotate: bool = True,
    times: int = 1,
) -> None:
    backend, journal = Idle(slurm), IntentLog(slurm.folder / "journal.db")  # type: ignore[operator]
    backend.job_seen = job
    settings = MonitorSettings(level=level, annotate=annotate)
    monitor = Monitor(backend, journal, settings, slurm=slurm, metrics=lambda _: {7: IDLE})
    for _ in range(times):
        monitor.sweep()
    assert monitor.failures == []
    journal.close()


def test_a_mail_goes_to_the_user_once_a_day_and_the_comment_is_written_once(
    slurm: Slurm, tmp_path: Path
) -> None:
    swept(slurm, times=3)
    mails = (tmp_path / "mails").read_text().splitlines()
    assert [mails[0], mails[2]] == ["<-s>", "<ada>"]
    assert mails[1].startswith("<rightsizer: job 7 $(touch pwned)")
    assert mails[1].endswith(": flag>")
    assert len(mails) == 3
    updates = (tmp_path / "updates").read_text().splitlines()
    assert updates[:2] == ["update", "JobId=7"]
    assert updates[2].startswith("AdminComment=[rightsizer/1 flag: ")
    assert len(updates) == 3


def test_hostile_text_of_a_job_starts_nothing_and_stays_on_its_line(slurm: Slurm, tmp_path: Path) -> None:
    comment = f"rightsizer: plan=/p.yaml run={tmp_path} {HOSTILE}"
    swept(slurm, job=replace(JOB, comment=comment, user_id=os.getuid()))
    assert not list(tmp_path.glob("**/pwned"))
    subject = (tmp_path / "mails").read_text().splitlines()[1]
    assert "Bcc: all@example.org" in subject
    assert "\x1b" not in subject
    assert "Priority=0" not in (tmp_path / "updates").read_text()


@pytest.mark.parametrize(
    ("level", "annotate", "told"),
    [
        (ActionLevel.FLAG, False, set()),
        (ActionLevel.FLAG, True, {"updates"}),
        (ActionLevel.MAIL, False, {"mails"}),
    ],
    ids=["flag", "annotate", "mail"],
)
def test_only_requested_notices_are_sent(
    slurm: Slurm, tmp_path: Path, level: ActionLevel, annotate: bool, told: set[str]
) -> None:
    swept(slurm, level=level, annotate=annotate)
    assert {path.name for path in tmp_path.iterdir() if path.name in {"updates", "mails"}} == told


def test_a_failing_mail_program_is_noted_and_the_sweep_continues(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "mail").write_text("#!/bin/sh\necho no such user >&2; exit 1\n")
    backend, journal = Idle(slurm), IntentLog(tmp_path / "journal.db")
    monitor = Monitor(
        backend, journal, MonitorSettings(level=ActionLevel.MAIL), slurm=slurm, metrics=lambda _: {7: IDLE}
    )
    assert len(monitor.sweep()) == 1
    assert monitor.failures == ["MailProg"]
    journal.close()


SIZED = "audit=7 [rightsizer/1 nodes=4 gpus=4 minutes=90: 4 H100, DP 4, USD 12]"


def test_the_size_of_a_running_job_goes_to_its_output_and_the_log_once(slurm: Slurm, caplog) -> None:
    with caplog.at_level("INFO"):
        swept(slurm, job=replace(JOB, admin_comment=SIZED), level=ActionLevel.FLAG, annotate=False, times=3)
    told = (slurm.folder / "updates").read_text().splitlines()  # type: ignore[operator]
    assert told == ["notify", "7", "rightsizer: sized: nodes=4 gpus=4 minutes=90: 4 H100, DP 4, USD 12"]
    assert caplog.text.count("job 7 of ada: sized: nodes=4") == 1


def test_a_notice_follows_the_size_in_the_admin_comment(slurm: Slurm) -> None:
    swept(slurm, job=replace(JOB, admin_comment=SIZED))
    updates = (slurm.folder / "updates").read_text()  # type: ignore[operator]
    assert f"AdminComment={SIZED[:-1]} | flag: " in updates


def test_a_waiting_job_and_one_that_was_not_sized_are_not_announced(slurm: Slurm) -> None:
    for job in (
        replace(JOB, admin_comment=SIZED, states=("PENDING",)),
        replace(JOB, admin_comment="nodes=4"),
    ):
        swept(slurm, job=job, level=ActionLevel.FLAG, annotate=False)
    assert not (slurm.folder / "updates").exists()  # type: ignore[operator]


def test_a_terminal_that_has_had_its_line_is_not_interrupted(slurm: Slurm, caplog) -> None:
    with caplog.at_level("INFO"):
        swept(
            slurm, job=replace(JOB, admin_comment=SIZED, batch=False), level=ActionLevel.FLAG, annotate=False
        )
    assert not (slurm.folder / "updates").exists()  # type: ignore[operator]
    assert "job 7 of ada: sized: nodes=4" in caplog.text


def test_the_log_has_the_size_of_a_job_of_rightsizer_sbatch(
    slurm: Slurm, tmp_path: Path, caplog, small_plan: str
) -> None:
    (tmp_path / "plan.yaml").write_text(small_plan)
    runfile.write(tmp_path, runfile.RunFile(job_id=7, decision="4 x 1 h100\nERROR"))
    job = replace(JOB, comment=f"rightsizer: plan=/p.yaml run={tmp_path}", user_id=os.getuid())
    with caplog.at_level("INFO"):
        swept(slurm, job=job, level=ActionLevel.FLAG, annotate=False, times=2)
    assert caplog.text.count("job 7 of ada: sized: 4 x 1 h100 ERROR") == 1
    assert not (tmp_path / "updates").exists()  # its own script writes its output
