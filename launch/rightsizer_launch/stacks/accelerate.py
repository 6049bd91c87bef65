"""Loops with Accelerate and without a Trainer: `Accelerator` is made for the plan, and its loop observed.

One public name is touched, once `accelerate` is imported: the first `Accelerator` of a script joins the
workers, draws its data in an order that does not depend on their number, and is observed.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rightsizer_launch.stacks.batch import accumulation_for
from rightsizer_launch.worker import job_environment

_DATA_SEED = 0


def observe(accelerate: ModuleType) -> None:
    """Observe the first `Accelerator` of this process; `accelerate` is the package."""
    if not job_environment.active():
        return
    import torch

    if not torch.accelerator.is_available():
        os.environ["ACCELERATE_USE_CPU"] = "true"  # it joins workers without an accelerator only if told so
    makes = accelerate.Accelerator
    makes.__init__ = _observed(makes.__init__, accelerate.DataLoaderConfiguration)


def _observed(init: Callable[..., None], configuration: Callable[[], Any]) -> Callable[..., None]:
    first = True

    @functools.wraps(init)
    def made(accelerator: Any, *positional: Any, **named: Any) -> None:
        nonlocal first
        named["dataloader_config"] = seeded(named.get("dataloader_config") or configuration())
        init(accelerator, *positional, **named)
        if first:
            from rightsizer_launch.integrations.accelerate import observed_by_plan

            accumulates = named.get("gradient_accumulation_steps", 1)
            observed_by_plan(accelerator, _micro_batches, accumulates=accumulates)
        first = False

    return made


def _micro_batches(size: int) -> int | None:
    return accumulation_for(job_environment.layout(), size)


def seeded(configuration: Any) -> Any:
    """A `DataLoaderConfiguration` whose shuffling depends on a seed and the epoch alone."""
    seed = configuration.data_seed if configuration.data_seed is not None else _DATA_SEED
    return dataclasses.replace(configuration, use_seedable_sampler=True, data_seed=seed)
