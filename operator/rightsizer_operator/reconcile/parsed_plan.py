"""A TrainingPlan parsed and resolved once for each spec. Pure."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from rightsizer_api import validate
from rightsizer_api.plan import Metadata
from rightsizer_api.sizing import ResolvedPlan, resolve


def parsed_plan(raw: Mapping[str, Any]) -> ResolvedPlan:
    """The plan in the engine's types. The cache's key leaves out the status and the server's metadata.

    InputError and UnsupportedError name the wrong field.
    """
    metadata = {name: value for name, value in raw["metadata"].items() if name in Metadata.model_fields}
    spec = {name: value for name, value in raw.items() if name != "status"} | {"metadata": metadata}
    return _resolved(json.dumps(spec))


@functools.lru_cache(maxsize=256)
def _resolved(text: str) -> ResolvedPlan:
    return resolve(validate(json.loads(text)))
