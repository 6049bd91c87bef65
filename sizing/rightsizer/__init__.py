"""rightsizer: from a model, tokens and a deadline to the fewest GPUs and the layout that meet it.

The functions live in their modules (`rightsizer.search.plan.plan`, `rightsizer.search.explain.explain`,
`rightsizer.catalog.lookup.model`). The values that they take and return are here. The engine does no I/O,
reads no clock and keeps no state. Names are loaded on first use, so importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rightsizer.domain.architecture import Architecture, AttentionKind, Family
    from rightsizer.domain.cases import Case, Cases
    from rightsizer.domain.framework import Framework
    from rightsizer.domain.hardware import Cluster, Gpu
    from rightsizer.domain.layout import Layout, Offload, Sharding
    from rightsizer.domain.workload import Method, Optimizer, Precision, Recompute, Workload
    from rightsizer.errors import (
        InputError,
        QuantityError,
        RightsizerError,
        UnknownNameError,
        UnsupportedError,
    )
    from rightsizer.estimate.goodput import Reliability
    from rightsizer.estimate.prediction import Prediction, predict
    from rightsizer.search.explain import Explanation
    from rightsizer.search.types import Binding, CurvePoint, NoPlan, Option, Plan, Request

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
    "domain.architecture": ("Architecture", "AttentionKind", "Family"),
    "domain.cases": ("Case", "Cases"),
    "errors": ("InputError", "QuantityError", "RightsizerError", "UnknownNameError", "UnsupportedError"),
    "estimate.prediction": ("Prediction", "predict"),
    "search.explain": ("Explanation",),
    "domain.framework": ("Framework",),
    "estimate.goodput": ("Reliability",),
    "domain.hardware": ("Cluster", "Gpu"),
    "domain.layout": ("Layout", "Offload", "Sharding"),
    "search.types": ("Binding", "CurvePoint", "NoPlan", "Option", "Plan", "Request"),
    "domain.workload": ("Method", "Optimizer", "Precision", "Recompute", "Workload"),
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
