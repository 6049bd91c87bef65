"""`rightsizer slurm install`: the packaged plugins, unit and settings, and where they belong."""

import enum
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable

SETTINGS = "rightsizer.conf"
UNIT = "rightsizer-slurm.service"
_SHARED = "rightsizer.lua"
_SUBMIT, _FILTER = "job_submit.lua", "cli_filter.lua"
NAMES = (SETTINGS, UNIT, _SHARED, _SUBMIT, _FILTER)
_PACKAGED_COMMAND = "/opt/rightsizer/bin/rightsizer"
_PACKAGED_ETC = "/etc/slurm/"


class Change(enum.StrEnum):
    """The effect of placing a file."""

    NEW = "new"
    SAME = "unchanged"
    REPLACE = "replace"
    KEEP = "keep"
    """The admin's own: rightsizer.conf, once it exists, and a plugin of the same name that is not ours."""


@immutable
class SiteFile:
    """One file of the package and its place on this machine."""

    path: Path
    content: str
    change: Change


def text(name: str) -> str:
    """A file as packaged. InputError for a name that is not one of NAMES."""
    if name not in NAMES:
        raise InputError("--print", value=name, remedy=f"use one of {', '.join(NAMES)}")
    content = pkgutil.get_data("rightsizer_slurm", f"data/{name}")
    assert content is not None  # every loader of ours has data
    return content.decode("utf-8")


def site_files(
    *, etc: Path, units: Path, command: Path, root: Path = Path("/"), cli_filter: bool = False
) -> tuple[SiteFile, ...]:
    """The files of this site, in the order in which slurmctld may meet them: shared code before its user.

    `etc` is slurm.conf's folder, `command` what the unit starts; `root` is put before each place.
    """
    return tuple(_site_files(etc=etc, units=units, command=command, root=root, cli_filter=cli_filter))


def _site_files(*, etc: Path, units: Path, command: Path, root: Path, cli_filter: bool) -> Iterator[SiteFile]:
    plugin = _FILTER if cli_filter else _SUBMIT
    for folder, name in ((etc, SETTINGS), (units, UNIT), (etc, _SHARED), (etc, plugin)):
        content = text(name)
        if name == UNIT:
            content = _unit(content, command, etc)
        path = root / folder.relative_to("/") / name
        yield SiteFile(path=path, content=content, change=_change(path, content))


def _unit(content: str, command: Path, etc: Path) -> str:
    """The unit for this command, written as systemd.service(5) reads it: a prefix is inside the quotes."""
    path = str(command).replace("%", "%%")
    if re.search(r"[\s\"'\\]", path):
        path = re.sub(r'(["\\])', r"\\\1", path)
        content = re.sub(rf"=(-?){_PACKAGED_COMMAND} ", rf'="\1{_PACKAGED_COMMAND}" ', content)
    return content.replace(_PACKAGED_COMMAND, path).replace(_PACKAGED_ETC, f"{etc}/")


def _change(path: Path, content: str) -> Change:
    """The effect of placing `content` at `path`."""
    try:
        there = path.read_text(errors="replace")
    except FileNotFoundError:
        return Change.NEW
    if there == content:
        return Change.SAME
    ours = path.name == UNIT or there.partition("\n")[0] == content.partition("\n")[0]
    return Change.REPLACE if ours and path.name != SETTINGS else Change.KEEP


def place(file: SiteFile) -> None:
    """Write a file that is new or replaced: mode 0644, never half of it."""
    if file.change not in {Change.NEW, Change.REPLACE}:
        return
    file.path.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.path.with_name(f".{file.path.name}.fresh")
    fresh.write_text(file.content)
    fresh.chmod(0o644)
    os.replace(fresh, file.path)
