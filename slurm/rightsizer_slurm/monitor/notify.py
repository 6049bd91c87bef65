"""Mail to a job's user through the site's MailProg, like Slurm's own mail."""

import shlex
import subprocess

from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError, settings
from rightsizer_slurm.cluster.untrusted_text import one_line

_TIMEOUT_S = 20.0


def mail_program(slurm: Slurm) -> str:
    """slurm.conf's MailProg; empty if unset."""
    return settings(slurm).get("MailProg", "")


def mail(program: str, *, user: str, subject: str, text: str) -> None:
    """Send one mail: PROGRAM -s SUBJECT USER, the text on standard input. SlurmError if it fails."""
    try:
        done = subprocess.run(
            [program, "-s", one_line(subject), user],
            check=False,
            capture_output=True,
            text=True,
            input=text + "\n",
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError("MailProg", f"{shlex.quote(program)}: {one_line(str(error))}") from None
    if done.returncode != 0:
        raise SlurmError("MailProg", one_line(done.stderr) or "failed silently", code=done.returncode)
