"""The JSON schema (2020-12) of each command's `--json`, from the types that the command prints."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from rightsizer_api.report import PlanReport
from rightsizer_api.status import PlanStatus
from rightsizer_cli.output.catalog import CountedModel, KnownFramework
from rightsizer_cli.output.documents.advice import AdviceDocument
from rightsizer_cli.output.documents.calibration import CalibrationDocument
from rightsizer_cli.output.documents.explanation import ExplanationDocument
from rightsizer_cli.output.documents.plan import PlanDocument
from rightsizer_cli.output.documents.replay import SimulationDocument
from rightsizer_cli.output.documents.usage import NoDataDocument, UsageDocument
from rightsizer_engine.domain.hardware import Gpu, NodeShape
from rightsizer_engine.errors import UnknownNameError
from rightsizer_launch.findings import Finding
from rightsizer_slurm.monitor.report_document import ReportDocument

DOCUMENTS: Mapping[str, Any] = {
    "plan": PlanDocument,
    "estimate": PlanReport,
    "explain": ExplanationDocument,
    "advise": AdviceDocument,
    "calibrate": CalibrationDocument,
    "simulate": SimulationDocument,
    "report": UsageDocument | NoDataDocument,
    "doctor": list[Finding],
    "models": list[CountedModel],
    "gpus": list[Gpu],
    "nodes": list[NodeShape],
    "frameworks": list[KnownFramework],
    "slurm-report": ReportDocument,
    "kubectl-plan": PlanReport,
    "kubectl-explain": ExplanationDocument,
    "kubectl-status": list[PlanStatus],
}
"""A command, its words joined by dashes, and what it prints."""

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_KUBERNETES_ONLY = "x-kubernetes-"
_FROM_THE_CLUSTER = ("kubectl-status",)
"""Documents that hold what the API server stores: fields without a value are absent from it."""


class _Printed(GenerateJsonSchema):
    """Every field of what we print is there, with or without a default."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True


def schema(name: str) -> dict[str, Any]:
    """The schema of one command's document. UnknownNameError for a command without one."""
    if name not in DOCUMENTS:
        raise UnknownNameError("COMMAND", value=name, candidates=tuple(DOCUMENTS))
    stored = name in _FROM_THE_CLUSTER
    found = TypeAdapter(DOCUMENTS[name]).json_schema(
        mode="validation" if stored else "serialization",
        schema_generator=GenerateJsonSchema if stored else _Printed,
    )
    head: dict[str, Any] = {"$schema": _DRAFT, "title": ""}
    closed: dict[str, Any] = _closed(found)
    return head | closed | {"title": _command_line(name)}


def _command_line(name: str) -> str:
    """`kubectl rightsizer status --json` of "kubectl-status"."""
    first, _, rest = name.partition("-")
    words = f"kubectl rightsizer {rest}" if first == "kubectl" else f"rightsizer {first} {rest}".rstrip()
    return f"{words} --json"


def _closed(node: Any) -> Any:
    """The schema with no object open to other keys, and without what only Kubernetes reads."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items() if not key.startswith(_KUBERNETES_ONLY)}
    if isinstance(node.get("properties"), dict) and node.get("type") == "object":
        closed["additionalProperties"] = False
    return closed
