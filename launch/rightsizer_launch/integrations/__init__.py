"""Callbacks that report to rightsizer: one line in a training script. Each imports its stack."""
