"""One module for each command. Their top level imports typer and the standard library: `--help` is quick."""
