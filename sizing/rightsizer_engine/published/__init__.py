"""Read rows of published training runs into the engine's cases."""
