"""Sizing a job at submission: the daemon behind the Lua plugins."""
