"""`rightsizer slurm ...`: what runs beside a Slurm cluster."""

import typer

from rightsizer_cli.commands.slurm.daemon import daemon
from rightsizer_cli.commands.slurm.install import install
from rightsizer_cli.commands.slurm.monitor import monitor
from rightsizer_cli.commands.slurm.report import report
from rightsizer_cli.commands.slurm.resize import resize

COMMANDS = (daemon, monitor, report, resize, install)


def slurm() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(
        name="slurm",
        help="Run beside a Slurm cluster: answer its submit plugins, monitor its jobs.",
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    group.callback()(_group)
    for command in COMMANDS:
        group.command()(command)
    return group


def _group(context: typer.Context) -> None:
    """Run beside a Slurm cluster: answer its submit plugins, monitor its jobs."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
