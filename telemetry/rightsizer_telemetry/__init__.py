"""Prometheus: queries, the one client, samples to readings, our own metric names."""
