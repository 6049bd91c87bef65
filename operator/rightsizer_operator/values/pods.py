"""A plan's pods: their phase, how they ended, and what keeps them from running."""

import contextlib
import datetime as dt
import enum
import signal
from collections.abc import Iterator, Mapping
from typing import Any

from rightsizer_api.quantities import parse_time
from rightsizer_api.state import State
from rightsizer_api.untrusted_text import printable
from rightsizer_engine.values import immutable
from rightsizer_launch.worker.progress import EXIT_STOPPED
from rightsizer_launch.worker.restart_monitor import LAST_LINE
from rightsizer_operator.values.names import CONTAINER, LABEL_ATTEMPT, LABEL_ROLE, QUEUE_ELASTIC, WORKER
from rightsizer_operator.values.quantities import parse_quantity

Object = Mapping[str, Any]

START_S = 4.0
"""What a start takes where nothing is amiss; until then it costs no list of pods and no status."""

_EVICTED = "Evicted"
_LAST = 4000  # characters that are read of a message, from its end
_MOST_CHARACTERS = 900  # of a worker's last lines
_LATE_LINES = 5  # a worker that is being stopped may print after the entrypoint's last line
_HEALTHY_WAITS = ("ContainerCreating", "PodInitializing")


class PodPhase(enum.StrEnum):
    """A pod's phase, in Kubernetes' words."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


_UNSCHEDULABLE = str(State.UNSCHEDULABLE)  # Kubernetes' word, which ours is taken from


@immutable
class Pod:
    """One pod of a plan.

    `deletion_deadline` is when its grace period ends, `message` its termination message, `reason` why it or
    its container ended (`OOMKilled`, `StartError`, `Evicted`). `waiting` is why its container does not start,
    `unschedulable` why it has no node, each with the cluster's words. `disrupted`: the cluster ended it.
    `gated`: Kueue's scheduling gate is still set.
    """

    name: str
    uid: str = ""
    role: str = WORKER
    attempt: int = 0
    node: str = ""
    phase: str = PodPhase.PENDING
    gated: bool = False
    created: dt.datetime | None = None
    address: str = ""
    deletion_deadline: dt.datetime | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    disrupted: bool = False
    waiting: str = ""
    waiting_message: str = ""
    unschedulable: str = ""

    @classmethod
    def of(cls, raw: Object) -> "Pod":
        """Parse a pod that the operator's Jobs or its ReplicaSet created."""
        metadata, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
        labels = metadata.get("labels", {})
        ended, waits = _state(status, "terminated"), _state(status, "waiting")
        conditions = {c["type"]: c for c in status.get("conditions", ())}
        scheduled = conditions.get("PodScheduled", {})
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            role=labels.get(LABEL_ROLE, WORKER),
            attempt=parse_quantity(labels.get(LABEL_ATTEMPT, 0)),
            node=spec.get("nodeName", ""),
            phase=status.get("phase", PodPhase.PENDING),
            gated=any(gate["name"] == QUEUE_ELASTIC for gate in spec.get("schedulingGates", ())),
            created=parse_time(metadata.get("creationTimestamp")),
            address=status.get("podIP", ""),
            deletion_deadline=parse_time(metadata.get("deletionTimestamp")),
            exit_code=ended.get("exitCode"),
            reason=printable(status.get("reason") or ended.get("reason", "")),
            message=printable((ended.get("message") or status.get("message", ""))[-_LAST:]).strip(),
            started_at=parse_time(ended.get("startedAt")),
            finished_at=parse_time(ended.get("finishedAt")),
            disrupted=conditions.get("DisruptionTarget", {}).get("status") == "True",
            waiting="" if waits.get("reason") in _HEALTHY_WAITS else printable(waits.get("reason", "")),
            waiting_message=printable(waits.get("message", "")),
            unschedulable=printable(scheduled.get("message", "") or "not scheduled")
            if scheduled.get("reason") == _UNSCHEDULABLE
            else "",
        )

    @property
    def has_failed(self) -> bool:
        """Whether it ended by a fault of its own: no stop on request, no preemption, no dead node."""
        stopped = self.deletion_deadline is not None or self.exit_code == EXIT_STOPPED
        disrupted = self.disrupted and self.reason != _EVICTED
        return self.phase == PodPhase.FAILED and not stopped and not disrupted

    @property
    def ended_at(self) -> dt.datetime | None:
        """When it ended; of a pod whose containers never started, when it was created."""
        return self.finished_at or self.created

    @property
    def cause(self) -> str:
        """Why it ended, in words: the reason, the exit code or signal, the worker's last lines, the pod."""
        lines = self.message.splitlines()
        late = [line for line in lines[-_LATE_LINES:] if line.startswith(LAST_LINE)]
        stated = late[-1].removeprefix(LAST_LINE) if late else ""
        lines = [line for line in lines if line not in late]
        said = "\n".join(lines).strip()
        said = said if len(said) <= _MOST_CHARACTERS else f"...{said[-_MOST_CHARACTERS:]}"
        where = f"{_ending(self.exit_code, self.reason)}, pod {self.name}"
        cause = f"{stated or said} ({where})" if stated or said else where
        return cause + (f"; last lines: {said}" if stated and said else "")


def _state(status: Object, kind: str) -> Object:
    """The state of this kind of the trainer or of an init container before it; else another container's."""
    found: list[tuple[bool, Object]] = []
    for name, state in _states(status):
        if kind in state:
            found.append((name == CONTAINER, state[kind]))
    return max(found, key=lambda each: each[0], default=(False, {}))[1]


def _states(status: Object) -> Iterator[tuple[str, Object]]:
    for container in status.get("initContainerStatuses", ()):
        state = container.get("state", {})
        if state.get("terminated", {}).get("exitCode") != 0:
            yield CONTAINER, state
    for container in status.get("containerStatuses", ()):
        yield container.get("name", ""), container.get("state", {})


def _ending(code: int | None, reason: str) -> str:
    """`OOMKilled, exit code 137`; the signal's name is added to codes above 128."""
    plain = reason in ("", "Error")
    if code is None:
        return reason or "failed"
    ending = f"exit code {code}"
    if code > 128 and reason != "StartError":
        with contextlib.suppress(ValueError):
            ending += f", {signal.Signals(code - 128).name}"
    return ending if plain else f"{reason}, {ending}"


def mount_paths(spec: Object) -> list[str]:
    """The mount paths of the containers of a pod spec."""
    mounts = (mount for each in spec.get("containers", ()) for mount in each.get("volumeMounts") or ())
    return [mount.get("mountPath", "") for mount in mounts]


def node_of(raw: Object) -> str:
    """The node of a pod; empty before it is scheduled."""
    return str(raw["spec"].get("nodeName") or "")
