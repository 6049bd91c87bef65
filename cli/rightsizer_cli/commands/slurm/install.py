"""`rightsizer slurm install`."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rightsizer_slurm.install_files import SiteFile

_UNITS = Path("/etc/systemd/system")
_NEXT = """\
next, as root:
    systemctl daemon-reload && systemctl enable --now rightsizer-slurm
    {conf}: {line}
    scontrol reconfigure
    rightsizer slurm install --check"""


def install(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Print what the site lacks and the lines to add; change nothing.")
    ] = False,
    place: Annotated[
        bool, typer.Option("--place", help="Write the files; never rightsizer.conf or a plugin of yours.")
    ] = False,
    print_file: Annotated[
        str, typer.Option("--print", metavar="FILE", help="Print one packaged file, such as job_submit.lua.")
    ] = "",
    etc: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="slurm.conf's folder. Default: SLURM_CONF's, /etc/slurm."),
    ] = None,
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="Put before every place, for packages and images.")
    ] = Path("/"),
    cli_filter: Annotated[
        bool, typer.Option("--cli-filter", help="cli_filter.lua for login nodes in place of job_submit.lua.")
    ] = False,
) -> int:
    """List the plugin's and the daemon's files and their places; with --place, write them."""
    from rightsizer_engine.errors import InputError
    from rightsizer_slurm import install_files

    if check + place + bool(print_file) > 1:
        raise InputError("--check", value=None, remedy="use one of --check, --place and --print")
    if check:
        return _check()
    if print_file:
        typer.echo(install_files.text(print_file), nl=False)
        return 0
    at = etc or Path(os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    if not at.is_absolute():
        raise InputError("--etc", value=str(at), remedy="use an absolute path")
    command = Path(sys.argv[0]).absolute()
    files = install_files.site_files(
        etc=at, units=_UNITS, command=command, root=root.absolute(), cli_filter=cli_filter
    )
    return _place(files, at, write=place, cli_filter=cli_filter)


def _place(files: "Iterable[SiteFile]", etc: Path, *, write: bool, cli_filter: bool) -> int:
    """Write the files if requested, and print each action; 1 if a plugin of the site is in the way."""
    from rightsizer_slurm.install_files import SETTINGS, Change, place

    in_the_way = False
    for file in files:
        if write:
            place(file)
        typer.echo(f"{file.change:10}{file.path}")
        if file.change is Change.KEEP and file.path.name != SETTINGS:
            in_the_way = True
            typer.echo(
                f"          not rightsizer's: write `rightsizer slurm install --print {file.path.name}` to"
                " a file beside it,\n          dofile that, and call its functions first"
            )
    if not write:
        typer.echo("nothing is written without --place")
    else:
        line = "CliFilterPlugins=lua" if cli_filter else "JobSubmitPlugins=lua"
        typer.echo(_NEXT.format(conf=etc / "slurm.conf", line=line))
    return int(in_the_way)


def _check() -> int:
    """Print what the site lacks; 1 if something is missing."""
    from rightsizer_launch.findings import FindingStatus
    from rightsizer_slurm.install_check import check

    findings = check()
    for finding in findings:
        typer.echo(finding.summary)
    missing = sum(finding.status is FindingStatus.MISSING for finding in findings)
    typer.echo(f"{missing} things are missing" if missing else "nothing is missing")
    return 1 if missing else 0
