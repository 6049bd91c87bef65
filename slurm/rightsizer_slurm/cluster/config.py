"""rightsizer.conf, the admin's file beside slurm.conf: modes, socket, timeouts. The plugin reads it too."""

import configparser
import difflib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.pools import NOT_FOR_TRAINING

MODES = ("off", "warn", "size", "enforce")
ON_FAULT = ("as-written", "hold", "refuse")
_LONGEST = 65_536
_TOP = "rightsizer"  # name of the section for the lines before the first heading
_GPUS, _MONITOR = "gpus", "monitor"
_BOUNDS = {
    "timeout_s": (0.01, 5.0),
    "cooldown_s": (0.0, 3600.0),
    "refresh_s": (0.5, 600.0),
    "hold_after_s": (0.0, 5.0),
    "hold_limit_s": (10.0, 86_400.0),
}


@immutable
class SiteConfig:
    """The site's settings. `timeout_s` is the plugin's timeout, `cooldown_s` its pause after a failure.

    A job whose sizing takes longer than `hold_after_s` is held, for `hold_limit_s` at most.
    `refresh_s` is the poll interval.
    `user` is the daemon's user (slurm.conf's SlurmUser); `users` allows requests of all users (cli_filter).
    `on_fault` is what becomes of a job whose comment is all that it says, when it cannot be sized.
    `runs` is a folder on all nodes to which jobs copy their records for the monitor; None: not needed here.
    `gpus` maps gres types, in lower case, to the engine's names; `monitor` has the monitor's settings.
    """

    mode: str = "size"
    on_fault: str = "as-written"
    partitions: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, str] = field(default_factory=dict)
    monitor: Mapping[str, str] = field(default_factory=dict)
    socket: Path = Path("/run/rightsizer/plan.sock")
    state: Path = Path("/var/lib/rightsizer/state.db")
    runs: Path | None = None
    user: str = "slurm"
    users: bool = False
    timeout_s: float = 0.3
    cooldown_s: float = 30.0
    refresh_s: float = 5.0
    hold_after_s: float = 0.0
    hold_limit_s: float = 600.0

    @property
    def waits(self) -> bool:
        """True if jobs wait for an unresponsive daemon: by `on_fault`, or in the mode enforce."""
        return self.on_fault != "as-written" or "enforce" in (self.mode, *self.partitions.values())

    def unsized(self, partitions: str) -> str:
        """The fate of a held job that cannot be sized: `on_fault`, or "refuse" with `enforce`."""
        enforced = any(self.mode_of(name) == "enforce" for name in partitions.split(","))
        return "refuse" if enforced else self.on_fault

    def mode_of(self, partition: str) -> str:
        """A partition's mode."""
        return self.partitions.get(partition, self.mode)


def read(path: Path) -> SiteConfig:
    """Read the site's file. InputError if it is missing, invalid, or writable by others than its owner."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a device may have no end
            raise InputError("--config", value=str(path), remedy="is not a regular file")
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise InputError("--config", value=str(path), remedy="no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--config", value=str(path), remedy=f"cannot be read: {error}") from None
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.geteuid()):
        raise InputError(
            "--config", value=str(path), remedy="must belong to root, and only root may write it"
        )
    return parse(text, name=str(path))


def beside(slurm_conf: str, *, configless: Path = Path("/etc/slurm")) -> SiteConfig:
    """The site's file beside slurm.conf if it is readable, else in /etc/slurm, else the defaults."""
    for folder in dict.fromkeys((Path(slurm_conf).parent, configless) if slurm_conf else ()):
        try:
            return read(folder / "rightsizer.conf")
        except InputError:
            continue
    return SiteConfig()


def parse(text: str, *, name: str = "rightsizer.conf") -> SiteConfig:
    """Parse the text of a site's file."""
    if len(text) > _LONGEST:
        raise InputError(name, value=f"{len(text)} characters", remedy=f"has more than {_LONGEST:,}")
    reader = configparser.ConfigParser(
        interpolation=None,
        delimiters="=",
        comment_prefixes="#",
        inline_comment_prefixes="#",
        default_section="",
    )
    try:
        reader.read_string(f"[{_TOP}]\n{text}")
    except configparser.Error as error:
        raise InputError(name, value="text", remedy=" ".join(str(error).split())) from None
    values: dict[str, Any] = {key: _value(key, text) for key, text in reader[_TOP].items()}
    partitions = {
        _partition(section): _mode_only(section, reader[section])
        for section in reader.sections()
        if section not in {_TOP, _GPUS, _MONITOR}
    }
    gpus = dict(reader[_GPUS]) if reader.has_section(_GPUS) else {}
    monitor = dict(reader[_MONITOR]) if reader.has_section(_MONITOR) else {}
    mapped = {gres: _engine_name(gres, name) for gres, name in gpus.items()}
    return replace(SiteConfig(), partitions=partitions, gpus=mapped, monitor=monitor, **values)


def _engine_name(gres: str, name: str) -> str:
    """The catalog's name of the GPU that a gres type is mapped to."""
    if name == NOT_FOR_TRAINING:
        return name
    try:
        return lookup.gpu(name).name
    except RightsizerError as error:
        remedy = f"{' '.join(str(error).split())}; write {NOT_FOR_TRAINING} to exclude these GPUs from sizing"
        raise InputError(f"[gpus] {gres}", value=name, remedy=remedy) from None


def _partition(section: str) -> str:
    match = re.fullmatch(r"partition\s+([\w.-]+)", section)
    if match is None:
        remedy = "is not a section; write [partition NAME], [gpus] or [monitor]"
        raise InputError(f"[{section}]", value=section, remedy=remedy)
    return match[1]


def _mode_only(section: str, values: Mapping[str, str]) -> str:
    if set(values) != {"mode"}:
        raise InputError(f"[{section}]", value=", ".join(values), remedy="a partition has one setting: mode")
    return _mode(values["mode"])


def _mode(text: str) -> str:
    return one_of("mode", text, MODES)


def one_of(key: str, text: str, allowed: Sequence[str]) -> str:
    """The text. InputError if it is none of the allowed ones."""
    if text not in allowed:
        raise InputError(key, value=text, remedy=f"must be one of {', '.join(allowed)}")
    return text


def _value(key: str, text: str) -> object:
    check_key(key, text, sorted({f.name for f in fields(SiteConfig)} - {"partitions", "gpus", "monitor"}))
    if key == "mode":
        return _mode(text)
    if key == "on_fault":
        return one_of(key, text, ON_FAULT)
    if key in _BOUNDS:
        return _bounded(key, text)
    if key in {"socket", "state", "runs"}:
        return absolute_path(key, text)
    return one_of(key, text, ("yes", "no")) == "yes" if key == "users" else text


def check_key(key: str, value: str, known: Sequence[str], *, section: str = "") -> None:
    """InputError for a setting that is not known, with the nearest that is."""
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise InputError(f"{section}{key}", value=value, remedy=f"unknown setting; {hint}")


def absolute_path(key: str, text: str) -> Path:
    """The path. InputError if it is relative."""
    if not text.startswith("/"):
        raise InputError(key, value=text, remedy="must be an absolute path")
    return Path(text)


def _bounded(key: str, text: str) -> float:
    least, most = _BOUNDS[key]
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise InputError(key, value=text, remedy=f"must be seconds from {least:g} to {most:g}")
    return number
