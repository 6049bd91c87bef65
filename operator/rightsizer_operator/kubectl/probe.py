"""`kubectl rightsizer probe`: a small TrainingPlan, created, followed by its status, and deleted."""

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rightsizer_api import dump, validate
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.state import ConditionType, State
from rightsizer_api.status import Status
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.observation import Observation, timed
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.reasons import layout_text
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Plan, Request
from rightsizer_engine.values import immutable
from rightsizer_launch.running import calibration
from rightsizer_launch.running.probe import Interrupted, Probe, no_steps
from rightsizer_launch.running.probe_end import ENOUGH_STEPS
from rightsizer_operator.kubectl.client import Client
from rightsizer_operator.kubectl.plans import condition, state_of
from rightsizer_operator.reconcile.size import cluster_request
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode

_LOOK_S = 2.0
_PLACED_S = 900.0
"""Time to be placed, pull the image and train a step, before a probe is given up. A choice."""
_SAVE_S = 120.0
"""After the probe's time, until the operator has published what it measured last. A choice."""
_WARM_UP, _LEAST_STEPS, _LEAST_S = 2, 10, 60.0
"""Steps that do not count, and what is measured at least: the status states its time in seconds."""


@immutable
class Look:
    """A status of the probe: the step that it trained, and when."""

    step: int
    at: dt.datetime
    status: Status


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
        """Create the probe, follow it, delete it, and return the measurements."""
        self.client.create(dump(probe.plan))
        name = probe.plan.metadata.name
        self.say(f"created TrainingPlan {name}; Ctrl-C deletes it")
        try:
            looks, said = self._follow(probe, name)
        except KeyboardInterrupt:
            raise Interrupted from None
        finally:
            self.client.delete(name)
        observation = observed_of(probe, self._request(probe.plan), looks)
        if observation is None:
            raise no_steps(probe, failed=said.startswith(State.FAILED) and not looks)
        return (observation,)

    def _follow(self, probe: Probe, name: str) -> tuple[Sequence[Look], str]:
        """Every status with new steps past the warm-up, and the last state in words."""
        until_s, looks, said = self.clock() + probe.limit_s + _PLACED_S, list[Look](), ""
        while self.clock() < until_s and not _has_enough(looks):
            raw = self.client.plan(name)
            message = condition(raw, ConditionType.READY).get("message", "")
            words = f"{state_of(raw)}{f': {message}' if message else ''}"
            if words != said:
                self.say(words)
                said = words
            look = _look(validate(dict(raw)).status)
            if look is not None and (not looks or look.step > looks[-1].step):
                if not looks:
                    until_s = self.clock() + probe.limit_s + _SAVE_S
                looks.append(look)
            state = State.of(state_of(raw))
            if state and state.ended:
                break
            self.sleep(_LOOK_S)
        return looks, said

    def _request(self, plan: TrainingPlan) -> Request:
        nodes = tuple(ClusterNode.of(raw) for raw in self.client.get("nodes")["items"])
        return cluster_request(plan, inventory=Inventory(nodes=nodes), created=dt.datetime.now(dt.UTC))


def _look(status: Status | None) -> Look | None:
    """A status as a look, if it has a step past the warm-up."""
    observed = status.observed if status is not None else None
    if status is None or observed is None or observed.updated_at is None:
        return None
    step = observed.step or 0
    return Look(step=step, at=observed.updated_at, status=status) if step > _WARM_UP else None


def _pace(looks: Sequence[Look]) -> tuple[int, float]:
    """Steps between the first and the last look, and their mean seconds; (0, 0): too few."""
    steps = looks[-1].step - looks[0].step if looks else 0
    if steps < _LEAST_STEPS:
        return 0, 0.0
    seconds = (looks[-1].at - looks[0].at).total_seconds()
    return (steps, seconds / steps) if seconds > 0 else (0, 0.0)


def _has_enough(looks: Sequence[Look]) -> bool:
    steps, step_s = _pace(looks)
    return steps >= ENOUGH_STEPS and steps * step_s >= _LEAST_S


def observed_of(probe: Probe, request: Request, looks: Sequence[Look]) -> Observation | None:
    """The measurements of the looks; None without steps. InputError: the operator chose another layout."""
    answer, (steps, step_s) = size(request, compared=False), _pace(looks)
    if not steps or not isinstance(answer, Plan):
        return None
    status = looks[-1].status
    option, sizing, attempt = answer.option, status.sizing, status.attempt
    expected = (option.gpus, layout_text(option.layout))
    if sizing is None or (sizing.gpus, sizing.layout_text) != expected:
        given = None if sizing is None else sizing.layout_text
        remedy = f"is not {expected[1]}, as sized here; is the operator of another version?"
        raise InputError("status.sizing.layoutText", value=given, remedy=remedy)
    start_s = 0.0
    if attempt is not None and attempt.started_at and attempt.trained_at:
        start_s = (attempt.trained_at - attempt.started_at).total_seconds()
    found = Observation(
        run=f"{probe.plan.metadata.name}/{attempt.job_name if attempt else ''}",
        case=Case(
            architecture=request.architecture,
            workload=request.workload,
            cluster=option.cluster,
            framework=request.framework,
            layout=option.layout,
        ),
        steps=steps,
        step_s=step_s,
    )
    return timed(found, start_s=start_s, checkpoint_s=0.0)
