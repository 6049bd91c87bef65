"""`kubectl rightsizer probe`: a small TrainingPlan, created, followed by its status, and deleted."""

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rightsizer.domain.cases import Case
from rightsizer.domain.hardware import Cluster
from rightsizer.domain.observation import Observation
from rightsizer.errors import InputError
from rightsizer.search.explain import layout_text
from rightsizer.search.plan import plan as size
from rightsizer.search.types import NoPlan, Plan, Request
from rightsizer.units import format_duration
from rightsizer_api import dump, validate
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.status import Status
from rightsizer_cli.kubectl.client import Client
from rightsizer_cli.kubectl.describe import condition, state_of
from rightsizer_launch import calibration
from rightsizer_launch.probe import ENOUGH_STEPS, Interrupted, Probe, no_steps
from rightsizer_operator.reconcile.size import cluster_request
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import Node

__all__ = ["KubernetesProbe", "observed_of"]

_LOOK_S = 2.0
_PLACED_S = 900.0
"""Time to be placed, pull the image and train a step, before a probe is given up. A choice."""
_SAVE_S = 120.0
"""After the probe's time, until the operator has published what it measured last. A choice."""
_OVER = ("Failed", "Complete")
_GIB = 2.0**30


@dataclass(slots=True)
class KubernetesProbe:
    """Probes in a cluster, through the user's kubectl."""

    client: Client
    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    clusters: Sequence[Cluster] = field(default=())

    def answer(self, plan: TrainingPlan) -> Plan | NoPlan:
        """The plan sized on all GPUs of the cluster, calibrated."""
        request = self._request(plan)
        self.clusters = request.clusters
        return size(calibration.calibrated(request), compared=False)

    def measure(self, probe: Probe) -> tuple[Observation, ...]:
        """Create the probe, follow it, delete it, and return what it measured."""
        self.client.create(dump(probe.plan))
        name = probe.plan.metadata.name
        self.say(f"created TrainingPlan {name}; Ctrl-C deletes it")
        try:
            status, said = self._follow(probe, name)
        except KeyboardInterrupt:
            raise Interrupted from None
        finally:
            self.client.delete(name)
        observation = None if status is None else observed_of(probe, self._request(probe.plan), status)
        if observation is None:
            self.say(said)
            raise no_steps(probe, failed=said.startswith("Failed"))
        return (observation,)

    def _follow(self, probe: Probe, name: str) -> tuple[Status | None, str]:
        """The last status with a measurement, and the last state in words."""
        began_s, best, said = self.clock(), None, ""
        until_s = began_s + probe.limit_s + _PLACED_S
        while self.clock() < until_s:
            raw = self.client.plan(name)
            message = condition(raw, "Ready").get("message", "")
            words = f"{state_of(raw)}{f': {message}' if message else ''}"
            if words != said:
                self.say(words)
                said = words
            status = validate(dict(raw)).status
            if status is not None and status.observed is not None and status.observed.step_seconds:
                if best is None:
                    until_s = self.clock() + probe.limit_s + _SAVE_S
                best = status
                if (status.observed.step or 0) >= ENOUGH_STEPS:
                    break
            if state_of(raw) in _OVER:
                break
            self.sleep(_LOOK_S)
        return best, said or f"not placed within {format_duration(_PLACED_S)}"

    def _request(self, plan: TrainingPlan) -> Request:
        nodes = tuple(Node.of(raw) for raw in self.client.get("nodes")["items"])
        return cluster_request(plan, inventory=Inventory(nodes=nodes), created=dt.datetime.now(dt.UTC))


def observed_of(probe: Probe, request: Request, status: Status) -> Observation | None:
    """What the status measured; None without steps. InputError: the operator chose another layout."""
    answer = size(request, compared=False)
    sizing, observed, attempt = status.sizing, status.observed, status.attempt
    if observed is None or not observed.step_seconds or not observed.step or not isinstance(answer, Plan):
        return None
    option = answer.option
    expected = (option.gpus, layout_text(option.layout))
    if sizing is None or (sizing.gpus, sizing.layout_text) != expected:
        given = None if sizing is None else sizing.layout_text
        remedy = f"is not {expected[1]}, as sized here; is the operator of another version?"
        raise InputError("status.sizing.layoutText", value=given, remedy=remedy)
    start_s = 0.0
    if attempt is not None and attempt.started_at and attempt.trained_at:
        start_s = max(0.0, (attempt.trained_at - attempt.started_at).total_seconds())
    return Observation(
        run=f"{probe.plan.metadata.name}/{attempt.job_name if attempt else ''}",
        case=Case(
            architecture=request.architecture,
            workload=request.workload,
            cluster=option.cluster,
            framework=request.framework,
            layout=option.layout,
        ),
        steps=observed.step,
        step_s=observed.step_seconds,
        allocated_bytes=(observed.memory_gib or 0.0) * _GIB,
        start_s=start_s,
    )
