"""DeepSpeed's engine: the plan's batch, precision and ZeRO stage win over its config; it is observed.

One public name is touched, once `deepspeed` is imported: the first `deepspeed.initialize` of a script gets
the plan's config over the script's own, and the engine that it makes is observed. The plan's config is the
last file that the command names; the script's own is a file before it, or an argument in its code.
"""

import argparse
import copy
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from rightsizer_launch.worker import job_environment

_OWN_LAYOUT = ("tensor_parallel", "sequence_parallel_size", "data_parallel_size")
_OWN_OFFLOAD = ("offload_optimizer", "offload_param")


def observe(deepspeed: ModuleType) -> None:
    """Observe the first engine of this process; `deepspeed` is the package."""
    if job_environment.active():
        deepspeed.initialize = _observed(deepspeed.initialize, deepspeed.load_ds_config)  # type: ignore[attr-defined]


def _observed(initialize: Callable[..., Any], read: Callable[[Any], dict[str, Any]]) -> Callable[..., Any]:
    first = True

    @functools.wraps(initialize)
    def made(args: Any = None, *positional: Any, **named: Any) -> Any:
        nonlocal first
        is_first, first = first, False
        if not is_first:
            return initialize(args, *positional, **named)
        from rightsizer_launch.integrations.deepspeed import observed_by_plan

        *own, plans = named_configs(sys.argv)
        own = [*own[-1:], *filter(None, (named.pop(name, None) for name in ("config", "config_params")))]
        config = merged(read(own[-1]) if own else {}, read(plans))
        return observed_by_plan(initialize(without_config(args), *positional, **named, config=config))

    return made


def named_configs(argv: Sequence[str]) -> list[str]:
    """The files that a command names as DeepSpeed's config, in its order."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--deepspeed_config", action="append", default=[])
    files: list[str] = parser.parse_known_args(argv)[0].deepspeed_config
    return files


def merged(own: Mapping[str, Any], plans: Mapping[str, Any]) -> dict[str, Any]:
    """The script's config under the plan's: parallelism and offloading are the plan's alone."""
    kept = {name: value for name, value in own.items() if name not in _OWN_LAYOUT}
    kept["zero_optimization"] = {
        name: value for name, value in own.get("zero_optimization", {}).items() if name not in _OWN_OFFLOAD
    }
    return _over(kept, plans)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _over(below[name], above[name]) for name in above if _are_objects(name, below, above)}
    return {**below, **above, **both}


def _are_objects(name: str, *documents: Mapping[str, Any]) -> bool:
    return all(isinstance(document.get(name), Mapping) for document in documents)


def without_config(args: Any) -> Any:
    """A script's arguments without a config, which `initialize` accepts only once."""
    if getattr(args, "deepspeed_config", None) is None:
        return args
    args = copy.copy(args)
    args.deepspeed_config = None
    return args
