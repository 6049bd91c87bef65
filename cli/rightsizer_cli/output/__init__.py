"""How answers look: tables, figures, JSON, exit codes."""
