"""rightsizer: from a model, tokens and a deadline to the fewest GPUs and the layout that meet it.

    import rightsizer
    answer = rightsizer.plan(model="meta-llama/Llama-3.1-8B", tokens="100B", deadline="72h", gpu="H100")

These names are stable; `docs/python.md` describes them. Their code is in `rightsizer_cli.python`, above the
engine, and is loaded on first use. The modules of this package are the engine: no I/O, no clock, no state.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rightsizer_cli.python.answers import Estimate, Interval, NoPlan, Plan, Refused, Step
    from rightsizer_cli.python.questions import estimate_layout, plan

__all__ = ["Estimate", "Interval", "NoPlan", "Plan", "Refused", "Step", "estimate_layout", "plan"]

_FUNCTIONS = ("estimate_layout", "plan")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rightsizer' has no attribute {name!r}")
    home = "questions" if name in _FUNCTIONS else "answers"
    value = getattr(import_module(f"rightsizer_cli.python.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
