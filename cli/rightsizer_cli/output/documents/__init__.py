"""The models of each `--json`; their schemas are in docs/schemas."""
