"""Bytes of one GPU by cause: states, activations, and the peak of the fullest pipeline stage."""
