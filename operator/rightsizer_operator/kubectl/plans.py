"""Plans of a cluster, read through kubectl, and sized on its GPUs as the operator does."""

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightsizer_api import load, loads
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import parse_time
from rightsizer_api.state import ConditionType
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Plan
from rightsizer_operator.kubectl.client import Client
from rightsizer_operator.reconcile.size import cluster_request
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode


def live_plan(raw: Mapping[str, Any]) -> TrainingPlan:
    """The plan of an object in the cluster, without its status."""
    kept = {key: raw[key] for key in ("apiVersion", "kind", "spec")}
    return loads(json.dumps(kept | {"metadata": _head(raw["metadata"])}), name=raw["metadata"]["name"])


def _head(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata}


def named_plan(client: Client, *, name: str, file: Path | None) -> tuple[TrainingPlan, dt.datetime]:
    """A manifest's plan or a live one, and when it was created."""
    now = dt.datetime.now(dt.UTC)
    if file is not None:
        return load(file), now
    if not name:
        raise InputError("NAME", value="", remedy="name a TrainingPlan, or a manifest with --file")
    raw = client.plan(name)
    return live_plan(raw), parse_time(raw["metadata"]["creationTimestamp"]) or now


def size_on_cluster(client: Client, *, name: str, file: Path | None) -> Plan | NoPlan:
    """Size a live plan or a manifest on all GPUs of the cluster's usable nodes."""
    plan, created = named_plan(client, name=name, file=file)
    nodes = tuple(node for raw in client.get("nodes")["items"] for node in ClusterNode.all_of(raw))
    return size(cluster_request(plan, inventory=Inventory(nodes=nodes), created=created))


def condition(plan: Mapping[str, Any], kind: ConditionType) -> Mapping[str, Any]:
    """A condition; empty if the plan has none of that type."""
    conditions = plan.get("status", {}).get("conditions", ())
    return next((entry for entry in conditions if entry["type"] == kind), {})


def state_of(plan: Mapping[str, Any]) -> str:
    """The reason of Ready; empty before the first reconciliation."""
    return str(condition(plan, ConditionType.READY).get("reason", ""))
