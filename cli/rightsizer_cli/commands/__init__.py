"""One module for each command. Their top level imports typer and the standard library: `--help` is quick."""

__all__: list[str] = []
