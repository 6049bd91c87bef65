import copy
from typing import Any

import pytest

PLAN: dict[str, Any] = {
    "apiVersion": "rightsizer.dev/v1alpha1",
    "kind": "TrainingPlan",
    "metadata": {"name": "support-bot-8b"},
    "spec": {
        "model": {"name": "meta-llama/Llama-3.1-8B"},
        "workload": {
            "tokens": "100B",
            "sequenceLength": 8192,
            "globalBatchTokens": "4M",
            "precision": "bf16",
        },
        "deadline": {"finishWithin": "72h", "confidence": 0.9},
        "budget": {"maxUSD": 60000},
        "resources": {"gpuTypes": ["H100-SXM5-80GB"], "maxGPUs": 256},
        "launch": {
            "framework": "torchtitan",
            "image": "ghcr.io/acme/train:1.4",
            "command": ["train.py"],
            "args": ["--tp", "{layout.tp}"],
            "checkpoint": {"path": "/ckpt", "interval": "auto"},
        },
        "elasticity": {"mode": "Recommend", "minGPUs": 8},
    },
}


def put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    if value is None:
        document.pop(leaf, None)
    else:
        document[leaf] = value


@pytest.fixture
def document():
    """A plan as plain values, with changes at dotted paths; None takes a field out."""

    def changed(changes: dict[str, Any] | None = None) -> dict[str, Any]:
        made = copy.deepcopy(PLAN)
        for path, value in (changes or {}).items():
            put(made, path, value)
        return made

    return changed
