"""Seconds of an optimizer step by cause: kernels, launches, collectives, and the pipeline schedule."""
