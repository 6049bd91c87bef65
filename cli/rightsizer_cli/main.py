"""`rightsizer`: the entry point. Turns results into exit codes and user errors into one line."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer.main import get_command

from rightsizer_cli.output.exits import BAD_INPUT, INTERRUPTED, OK, SYSTEM

COMMANDS = {
    "plan": "plan",
    "estimate": "estimate",
    "explain": "explain",
    "run": "run",
    "probe": "probe",
    "sbatch": "sbatch",
    "advise": "advise",
    "calibrate": "calibrate",
    "simulate": "simulate",
    "report": "report",
    "doctor": "doctor",
    "serve": "serve",
    "models": "catalog",
    "gpus": "catalog",
    "nodes": "catalog",
    "frameworks": "catalog",
    "operator": "operate",
    "crd": "crd",
    "schema": "schema",
    "version": "version",
    "slurm": "slurm.command",
}
"""Each command and its module in `rightsizer_cli.commands`, in the order of the help."""

_LONGEST = 2000
"""Characters of an error's line: a value may be a file's content by mistake."""
_BY_HAND = "_RIGHTSIZER_COMPLETE=source_bash rightsizer"
"""The script of a named shell: bash, zsh, fish."""

EPILOG = """Exit codes: 0 success, 1 the system refused, 2 bad input, 3 no plan meets the goal, 4 no data.
Completion for your shell: rightsizer --install-completion."""


def main() -> None:
    """Run with this process's arguments and exit with the command's code."""
    sys.exit(execute(sys.argv[1:]))


def execute(args: Sequence[str]) -> int:
    """Run one command line; the exit code. A user's mistake is one line on stderr."""
    if _names_completion(args) and (why := undetected_shell()):
        return _fail(f"{args[0]}: {why}")
    command = next((arg for arg in args if not arg.startswith("-")), "")
    names = [command] if command in COMMANDS and not _asks_for_completion(args) else list(COMMANDS)
    app = build(names, completion=_asks_for_completion(args))
    return outcome(app, args, program="rightsizer")


def outcome(app: typer.Typer, args: Sequence[str], *, program: str) -> int:
    """The exit code of one command line of an application; its errors in one line on stderr."""
    try:
        if sys.stdout is None:  # typer would drop the output
            raise OSError(errno.EBADF, "stdout is closed; for no output, use >/dev/null")
        code = get_command(app).main(args=list(args) or ["--help"], prog_name=program, standalone_mode=False)
        typer.echo(nl=False)  # flushes, so that a full disk is an error here
    except typer.TyperException as error:
        return _fail(_misused(error, program))
    except typer.Abort:
        return INTERRUPTED
    except OSError as error:
        return _refused(error)
    except UnicodeEncodeError as error:
        unknown = error.object[error.start : error.end]
        why = f"{error.encoding} has no {unknown[:20]!r}; set PYTHONIOENCODING=utf-8"
        return _refused(OSError(errno.EILSEQ, why))
    except ValueError as error:
        from rightsizer_engine.errors import RightsizerError

        if not isinstance(error, RightsizerError):
            raise
        from rightsizer_cli.requests.usage_errors import format_error

        return _fail(format_error(error))
    return code if isinstance(code, int) else OK


def _misused(error: typer.TyperException, program: str) -> str:
    """The fault of a command line, with a pointer to its help; another tool's option with ours."""
    context = getattr(error, "ctx", None)
    message = error.format_message()
    typed = getattr(error, "option_name", None)
    if context and typed and hasattr(error, "possibilities"):
        from rightsizer_cli.requests.foreign_options import remedy

        known = {name for option in context.command.params for name in option.opts}
        if said := remedy(typed, known):
            message = f"No such option: {typed}; {said}"
    return f"{message} (see `{context.command_path if context else program} --help`)"


def build(names: Iterable[str] = tuple(COMMANDS), *, completion: bool = False) -> typer.Typer:
    """The application with these commands: one is quicker to build than all of them.

    Typer's completion options import pydantic: only on demand.
    """
    app = typer.Typer(
        name="rightsizer",
        help="Size LLM training: the fewest GPUs and the layout that meet a deadline.",
        epilog=EPILOG,
        add_help_option=False,  # typer's would import pydantic on every command's way; _root's does not
        add_completion=completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_root)
    for name in names:
        command = getattr(import_module(f"rightsizer_cli.commands.{COMMANDS[name]}"), name)
        if name == "slurm":
            app.add_typer(command())
        else:
            app.command()(command)
    return app


def _show_help(context: typer.Context, *, wanted: bool) -> None:
    if wanted:
        typer.echo(context.get_help())
        raise typer.Exit


def _show_version(*, wanted: bool) -> None:
    if wanted:
        from rightsizer_cli.commands.version import version

        version()
        raise typer.Exit


def _root(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
    show_help: Annotated[
        bool,
        typer.Option("--help", "-h", help="Show this message and exit.", is_eager=True, callback=_show_help),
    ] = False,
) -> None:
    """Options of the program itself; each exits before this body runs."""


def _asks_for_completion(args: Sequence[str]) -> bool:
    return "_RIGHTSIZER_COMPLETE" in os.environ or _names_completion(args)


def _names_completion(args: Sequence[str]) -> bool:
    return any(arg.startswith(("--install-completion", "--show-completion")) for arg in args)


def undetected_shell(detect: Callable[[], object] | None = None) -> str:
    """The reason why the calling shell is unknown, and the remedy; empty if known. Typer prints less."""
    import shellingham

    try:
        (detect or shellingham.detect_shell)()
    except (OSError, shellingham.ShellDetectionFailure) as error:
        why = f" ({error})" if str(error) else ""
        return f"the shell cannot be detected{why}; write the output of `{_BY_HAND}` to a file that it reads"
    return ""


def _refused(error: OSError) -> int:
    """Print what the system refused (a full disk, a folder without permission); the exit code."""
    what = str(error.filename) if error.filename else "output"
    _fail(f"{what}: {error.strerror or error}")
    _drop_unwritten()
    return SYSTEM


def _drop_unwritten() -> None:
    """Send what stdout still buffers to nowhere if it cannot be written: the interpreter would fail again."""
    try:
        typer.echo(nl=False)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    """Print one line on stderr, unless that is full; the exit code. A long line loses its middle."""
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
    with contextlib.suppress(OSError):
        typer.echo(f"error: {message}", err=True)
    return BAD_INPUT
