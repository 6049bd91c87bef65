"""Runs Slurm's commands: argument lists, timeouts, a clean environment, one-line errors."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.values import immutable

_KEPT = ("HOME", "LOGNAME", "PATH", "SLURM_CONF", "TZ", "USER")
_MOST_ARGUMENT = 131_072  # the kernel's limit of one argument


class SlurmError(RightsizerError):
    """A failed command of Slurm; `code` is its exit code, None if it did not exit by itself."""

    def __init__(self, command: str, detail: str, *, code: int | None = None) -> None:
        self.command = command
        self.detail = detail
        self.code = code
        super().__init__(f"{command}: {detail}")


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without SLURM_*, SBATCH_* and SQUEUE_*, which change a command's effect or output."""
    kept = {name: environment[name] for name in _KEPT if name in environment}
    return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


def _clean_own() -> dict[str, str]:
    return _clean(os.environ)


@immutable
class Slurm:
    """Runs Slurm's commands: their folder (None: the PATH), environment and timeout."""

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
        """The command's output. SlurmError, in one line, if it fails, is missing or times out.

        `environment` replaces the clean one, for an sbatch whose job inherits its user's variables.
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
            raise SlurmError(command, "command not found; install Slurm's client programs") from None
        except OSError as error:
            raise SlurmError(command, f"cannot be started: {error.strerror}") from None
        if done.returncode != 0:
            detail = one_line(done.stderr) or one_line(done.stdout) or "failed without a message"
            raise SlurmError(command, detail, code=done.returncode)
        return done.stdout


def settings(slurm: Slurm) -> Mapping[str, str]:
    """slurm.conf in the controller (`scontrol show config`) by name; (null) becomes empty."""
    pairs = (line.partition("=") for line in slurm.run("scontrol", "show", "config").splitlines())
    values = {name.strip(): value.strip() for name, equals, value in pairs if equals}
    return {name: "" if value in {"(null)", "N/A"} else value for name, value in values.items()}
