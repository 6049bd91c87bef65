"""`kubectl-rightsizer`, which kubectl finds on the PATH and runs as `kubectl rightsizer`."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from rightsizer_cli.kubectl.commands import COMMANDS
from rightsizer_cli.main import outcome

EPILOG = """Exit codes: 0 done, 1 the plan is over, 2 bad input or refused, 3 no plan meets the goal here,
4 change requested, but not in effect at the timeout."""


def main() -> None:
    """Run with this process's arguments and exit with the command's code."""
    sys.exit(execute(sys.argv[1:]))


def execute(args: Sequence[str]) -> int:
    """Run one command line; the exit code. A user's mistake is one line on stderr."""
    return outcome(build(), args, program="kubectl rightsizer")


def build() -> typer.Typer:
    """The application with every command."""
    app = typer.Typer(
        name="kubectl-rightsizer",
        help="TrainingPlans in your cluster: how they do, why, and how to change them.",
        epilog=EPILOG,
        add_help_option=False,  # as in rightsizer_cli.main
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_root)
    for command in COMMANDS:
        app.command()(command)
    return app


def _show_help(context: typer.Context, *, wanted: bool) -> None:
    if wanted:
        typer.echo(context.get_help())
        raise typer.Exit


def _root(
    *,
    show_help: Annotated[
        bool,
        typer.Option("--help", "-h", help="Show this message and exit.", is_eager=True, callback=_show_help),
    ] = False,
) -> None:
    """The option exits before this body runs."""
