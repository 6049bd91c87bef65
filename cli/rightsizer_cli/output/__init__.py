"""The form of output: tables, figures, JSON, exit codes."""
