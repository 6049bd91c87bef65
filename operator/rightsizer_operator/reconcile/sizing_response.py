"""A size request to the engine and its response: values that can go to another process and back. Pure.

A reconcile sends requests through a function. Inline, that is `cached_response`. The operator's
function returns known responses, and raises `NotSizedYetError` otherwise: a search can take longer than the
operator's Lease.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from rightsizer_api import reporting
from rightsizer_api.state import State
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.errors import RightsizerError, UnsupportedError
from rightsizer_engine.resize.scaling import in_place_pins
from rightsizer_engine.search.explain import probe_advice, verdict
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Plan, Request
from rightsizer_engine.values import immutable
from rightsizer_operator.reconcile.elastic_micro_batch import with_divisible_micro_batch
from rightsizer_operator.values.sized import SizedPlan


@immutable
class RunningAttempt:
    """A running attempt's constraints: its layout, its batch and its trained tokens.

    `pod_gpus` is the size of the pods that an elastic attempt adds; 0: each size has its own pods.
    """

    layout: Layout
    batch: int
    elastic: bool
    gpu_type: str
    tokens: float = 0.0
    pod_gpus: int = 0


Identity = tuple[bytes, tuple[tuple[str, int], ...] | None]


class SizeRequest:
    """A request on at most `most` GPUs of each type (None: no limit), as the key of a cache."""

    __slots__ = ("_key", "elastic", "most", "request", "running")

    def __init__(
        self,
        request: Request,
        *,
        most: Mapping[str, int] | None = None,
        running: RunningAttempt | None = None,
        elastic: range = range(0),
    ) -> None:
        self.request, self.running, self.elastic = request, running, elastic
        self.most = None if most is None else dict(most)
        text = repr((request, running, elastic))  # requests hold mappings, which have no hash
        self._key = hashlib.sha256(text.encode()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SizeRequest) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def identity(self) -> Identity:
        """The key of equal requests, a hundredth of one in size, for a cache of results."""
        return self._key, None if self.most is None else tuple(sorted(self.most.items()))

    def is_met_by(self, found: "SizeResponse", of: "SizeRequest") -> bool:
        """Whether the size `of` the same request on as many GPUs or more holds here too.

        The best size on more GPUs is the best one here if it fits. What more GPUs cannot meet, these cannot.
        """
        if of._key != self._key or self.most is None or of.most is None or found.refusal:
            return False
        if any(gpus > of.most.get(kind, 0) for kind, gpus in self.most.items()):
            return False
        sized = found.sized
        return sized is None or sized.gpus <= self.most.get(sized.gpu_type, 0)


@immutable
class SizeResponse:
    """`sized` is the sized plan; None: no size, and `message` says why.

    `refusal` is a condition's reason if there is no answer: the request is wrong, or it takes too long.
    """

    sized: SizedPlan | None = None
    message: str = ""
    refusal: str = ""


class NotSizedYetError(Exception):
    """The size is not known yet. `long`: a first, short search did not find it."""

    def __init__(self, size_request: SizeRequest, *, long: bool = False) -> None:
        super().__init__("not sized yet")
        self.size_request, self.long = size_request, long


class SizingRefusedError(Exception):
    """The search took more time or memory than it may."""


Size = Callable[[SizeRequest], SizeResponse]


def report_of(size: Size, size_request: SizeRequest) -> SizeResponse:
    """The report; UnsupportedError or SizingRefusedError if it is a refusal."""
    found = size(size_request)
    if found.refusal == State.FAULT:
        raise RuntimeError(found.message)
    if found.refusal == State.INVALID:
        raise UnsupportedError(found.message)
    if found.refusal:
        raise SizingRefusedError(found.message)
    return found


def respond(size_request: SizeRequest) -> SizeResponse:
    """Search for the size. A wrong request is an answer too, so that it is not searched again."""
    try:
        found = _searched(size_request)
    except RightsizerError as error:
        return SizeResponse(message=str(error), refusal=State.INVALID)
    if isinstance(found, NoPlan):
        return SizeResponse(message=verdict(found))
    advice = probe_advice(found.request, found.option)
    return SizeResponse(sized=_sized(found), message="; ".join(filter(None, (verdict(found), advice))))


cached_response = functools.lru_cache(maxsize=256)(respond)
"""`respond`, cached: the same requests repeat with every reconcile."""


def _searched(size_request: SizeRequest) -> Plan | NoPlan:
    """The size; for an elastic run, its own layout on more or fewer GPUs if that is as good."""
    request, running, most = size_request.request, size_request.running, size_request.most
    if most is not None:
        offered = tuple(
            replace(cluster, max_gpus=most[cluster.gpu.name])
            for cluster in request.clusters
            if most[cluster.gpu.name]
        )
        request = replace(request, clusters=offered)
    if running is None or not running.elastic:
        found = size(request)
        if isinstance(found, NoPlan):
            return found
        return with_divisible_micro_batch(request, found, size_request.elastic, size)
    kept = size(replace(request, pinned={**request.pinned, **in_place_pins(running.layout)}))
    free = size(request)
    if isinstance(kept, Plan) and (not isinstance(free, Plan) or kept.option.gpus <= free.option.gpus):
        return kept
    return free


def _sized(found: Plan) -> SizedPlan | None:
    """The plan as status.sizing holds it, with three runners-up."""
    report = reporting.report(found)
    report = report.model_copy(update={"runners_up": report.runners_up[:3]})
    return SizedPlan.of(report.model_dump(mode="json", exclude_none=True, by_alias=True))
