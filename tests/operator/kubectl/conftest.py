"""A live plan, and a kubectl that answers from lists."""

import copy
import datetime as dt
import json
import subprocess
from dataclasses import dataclass

import pytest

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
PLAN = {
    "apiVersion": "rightsizer.dev/v1alpha1",
    "kind": "TrainingPlan",
    "metadata": {
        "name": "demo",
        "namespace": "nlp",
        "uid": "u1",
        "generation": 2,
        "creationTimestamp": "2026-11-21T10:00:00Z",
    },
    "spec": {
        "model": {"name": "gpt2"},
        "workload": {"tokens": "1B"},
        "resources": {"minGPUs": 1, "maxGPUs": 8},
    },
    "status": {
        "observedGeneration": 2,
        "sizing": {"gpus": 2, "gpuType": "H100-SXM5-80GB", "layoutText": "DP 2", "tokensPerSecond": 1000.0},
        "attempt": {"number": 1, "gpus": 2, "jobName": "demo-a1"},
        "deadline": "2026-11-22T12:00:00Z",
        "eta": "2026-11-22T10:00:00Z",
        "observed": {"tokensPerSecond": 900.0, "progress": 0.25, "step": 40, "restarts": 1},
    },
}


@dataclass(frozen=True)
class Where:
    """The options of kubectl, with its defaults."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""


def says(plan, **conditions):
    """The plan with these conditions: Ready="Running", or Sized=("False", "NoPlan", "why")."""
    stated = []
    for kind, value in conditions.items():
        state, reason, message = value if isinstance(value, tuple) else ("True", value, "")
        stated.append({"type": kind, "status": state, "reason": reason, "message": message})
        stated[-1]["lastTransitionTime"] = "2026-11-21T11:00:00Z"
    plan["status"]["conditions"] = stated
    return plan


class Server:
    """A kubectl that answers from a list, and remembers what it was asked."""

    def __init__(self, *plans, events=(), nodes=()):
        self.plans, self.events, self.nodes, self.asked = list(plans), events, nodes, []

    def __call__(self, arguments):
        self.asked.append(list(arguments))
        verb = next(word for word in arguments if not word.startswith("-"))
        if verb in {"patch", "scale"}:
            return subprocess.CompletedProcess(arguments, 0, "", "")
        kind, *names = (word for word in arguments[arguments.index("get") + 1 :] if not word.startswith("-"))
        items = {"events": self.events, "nodes": self.nodes}.get(kind, self.plans)
        if not names:
            return subprocess.CompletedProcess(arguments, 0, json.dumps({"items": list(items)}), "")
        found = next((each for each in items if each["metadata"]["name"] == names[0]), None)
        if found is None:
            said = f'Error from server (NotFound): trainingplans.rightsizer.dev "{names[0]}" not found\n'
            return subprocess.CompletedProcess(arguments, 1, "", said)
        return subprocess.CompletedProcess(arguments, 0, json.dumps(found), "")


@pytest.fixture
def plan():
    return says(
        copy.deepcopy(PLAN), Ready="Running", Running="AllWorkers", DeadlineAtRisk=("False", "OnTime", "")
    )
