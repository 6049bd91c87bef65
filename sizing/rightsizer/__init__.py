"""rightsizer: from a model, tokens and a deadline to the fewest GPUs and the layout that meet it.

The verbs live in their modules (`rightsizer.plan.plan`, `rightsizer.explain.explain`,
`rightsizer.catalog.model`); the values that they take and give are here. Nothing does I/O, reads a clock or
keeps state. Names are loaded when first used, so that importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rightsizer.architecture import Architecture, AttentionKind, Family
    from rightsizer.cases import Case, Cases
    from rightsizer.errors import (
        InputError,
        QuantityError,
        RightsizerError,
        UnknownNameError,
        UnsupportedError,
    )
    from rightsizer.estimate import Prediction, predict
    from rightsizer.explain import Explanation
    from rightsizer.framework import Framework
    from rightsizer.goodput import Reliability
    from rightsizer.hardware import Cluster, Gpu
    from rightsizer.layout import Layout, Offload, Sharding
    from rightsizer.outcome import Binding, CurvePoint, NoPlan, Option, Plan, Request
    from rightsizer.workload import Method, Optimizer, Precision, Recompute, Workload

__all__ = [
    "Architecture",
    "AttentionKind",
    "Binding",
    "Case",
    "Cases",
    "Cluster",
    "CurvePoint",
    "Explanation",
    "Family",
    "Framework",
    "Gpu",
    "InputError",
    "Layout",
    "Method",
    "NoPlan",
    "Offload",
    "Optimizer",
    "Option",
    "Plan",
    "Precision",
    "Prediction",
    "QuantityError",
    "Recompute",
    "Reliability",
    "Request",
    "RightsizerError",
    "Sharding",
    "UnknownNameError",
    "UnsupportedError",
    "Workload",
    "predict",
]

_HOMES = {
    "architecture": ("Architecture", "AttentionKind", "Family"),
    "cases": ("Case", "Cases"),
    "errors": ("InputError", "QuantityError", "RightsizerError", "UnknownNameError", "UnsupportedError"),
    "estimate": ("Prediction", "predict"),
    "explain": ("Explanation",),
    "framework": ("Framework",),
    "goodput": ("Reliability",),
    "hardware": ("Cluster", "Gpu"),
    "layout": ("Layout", "Offload", "Sharding"),
    "outcome": ("Binding", "CurvePoint", "NoPlan", "Option", "Plan", "Request"),
    "workload": ("Method", "Optimizer", "Precision", "Recompute", "Workload"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rightsizer' has no attribute {name!r}")
    value = getattr(import_module(f"rightsizer.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
