"""The TrainingPlan API: one document that states what to train and by when; its models, errors and schemas.

Names are imported when they are first used: a command that prints its help must not pay for pydantic.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rightsizer_api.errors import PlanError
    from rightsizer_api.manifest import dump, load, loads, validate, with_config
    from rightsizer_api.placeholders import PLACEHOLDERS, expand
    from rightsizer_api.plan import API_VERSION, GROUP, KIND, VERSION, Metadata, Spec, TrainingPlan
    from rightsizer_api.report import PlanReport
    from rightsizer_api.schema.crd import crd_yaml
    from rightsizer_api.status import Status

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "PLACEHOLDERS",
    "VERSION",
    "Metadata",
    "PlanError",
    "PlanReport",
    "Spec",
    "Status",
    "TrainingPlan",
    "crd_yaml",
    "dump",
    "expand",
    "load",
    "loads",
    "validate",
    "with_config",
]

_HOMES = {
    "schema.crd": ("crd_yaml",),
    "errors": ("PlanError",),
    "manifest": ("dump", "load", "loads", "validate", "with_config"),
    "placeholders": ("PLACEHOLDERS", "expand"),
    "plan": ("API_VERSION", "GROUP", "KIND", "VERSION", "Metadata", "Spec", "TrainingPlan"),
    "report": ("PlanReport",),
    "status": ("Status",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"rightsizer_api.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
