"""The one place that runs Slurm's commands: argument lists, time-outs, a clean environment, short errors."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from rightsizer.errors import RightsizerError
from rightsizer.values import immutable
from rightsizer_slurm.cluster.untrusted_text import one_line

__all__ = ["Slurm", "SlurmError", "settings"]

_KEPT = ("HOME", "LOGNAME", "PATH", "SLURM_CONF", "TZ", "USER")
_MOST_ARGUMENT = 131_072  # the kernel's limit of one argument


class SlurmError(RightsizerError):
    """A command of Slurm that failed; `code` is its exit code, None where it did not come to one."""

    def __init__(self, command: str, detail: str, *, code: int | None = None) -> None:
        self.command = command
        self.detail = detail
        self.code = code
        super().__init__(f"{command}: {detail}")


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the SLURM_*, SBATCH_* and SQUEUE_* that would change what a command means or prints."""
    kept = {name: environment[name] for name in _KEPT if name in environment}
    return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


def _clean_own() -> dict[str, str]:
    return _clean(os.environ)


@immutable
class Slurm:
    """How Slurm's commands are reached: their folder (None: the PATH), environment and patience."""

    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=_clean_own)
    timeout_s: float = 30.0

    def run(
        self,
        command: str,
        *arguments: str,
        text: str | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """What the command prints. SlurmError, in one line, where it fails, is missing or takes too long.

        `environment` replaces the clean one, for an sbatch whose job shall inherit its user's.
        """
        program = str(self.folder / command) if self.folder else command
        limit_s = timeout_s or self.timeout_s
        for argument in arguments:
            if "\0" in argument or len(argument) > _MOST_ARGUMENT:
                raise SlurmError(command, f"an argument is too long or not text: {one_line(argument)[:40]}")
        try:
            done = subprocess.run(
                [program, *arguments],
                check=False,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                input=text if text is not None else "",
                env=dict(self.environment if environment is None else environment),
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            raise SlurmError(command, f"no answer within {limit_s:g} s") from None
        except FileNotFoundError:
            raise SlurmError(command, "no such command here; install Slurm's client programs") from None
        except OSError as error:
            raise SlurmError(command, f"cannot be started: {error.strerror}") from None
        if done.returncode != 0:
            said = one_line(done.stderr) or one_line(done.stdout) or "failed without a word"
            raise SlurmError(command, said, code=done.returncode)
        return done.stdout


def settings(slurm: Slurm) -> Mapping[str, str]:
    """slurm.conf as the controller has it (`scontrol show config`), by name; (null) is empty."""
    pairs = (line.partition("=") for line in slurm.run("scontrol", "show", "config").splitlines())
    values = {name.strip(): value.strip() for name, equals, value in pairs if equals}
    return {name: "" if value in {"(null)", "N/A"} else value for name, value in values.items()}
