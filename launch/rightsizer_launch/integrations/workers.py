"""Refuses a training whose stack does not join the workers: each of them would train alone."""

import os

from rightsizer_engine.errors import InputError


def joined_by_all(workers: int) -> None:
    """InputError unless the stack trains on as many workers as torchrun started."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if workers != started:
        remedy = f"torchrun started {started}; the script or its stack does not join them in one training"
        raise InputError("workers of the training", value=workers, remedy=remedy)
