"""Rows of published training runs, read into the engine's cases."""

__all__: list[str] = []
