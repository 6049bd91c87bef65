"""The watches, which kopf keeps connected. Handlers pass each event to the controller."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast, get_args, get_type_hints

import kopf

from rightsizer_api.plan import GROUP, VERSION
from rightsizer_operator.cluster.client import PAGE_SIZE, ApiError
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.values.devices import GROUP as GROUP_OF_DEVICES
from rightsizer_operator.values.metadata import without_managed_fields
from rightsizer_operator.values.names import LABEL_MANAGED, MANAGED

_PLANS = kopf.Resource(
    group=GROUP, version=VERSION, plural="trainingplans", kind="TrainingPlan", namespaced=True
)
_DEFINITION_POLL_S = 2.0
_IDLE_S = 0.2  # kopf drops an object's worker this long after its last event


class _NoState(kopf.DiffBaseStorage):
    """A diff base that stores nothing, so that kopf does not copy every object at every event."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """No field is compared."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Fetch nothing: nothing is stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


def settings_for(*, clusterwide: bool) -> kopf.OperatorSettings:
    """Kopf without state of its own, watching only the operator's children, with back-off after errors.

    Clusterwide it also watches CustomResourceDefinitions, so that plans are watched as soon as theirs is
    there. An operator of some namespaces does not: kopf would first list all namespaces, which it may not,
    and watch nothing until its last retry.
    """
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = not clusterwide
    for resource in (("batch", "v1", "jobs"), ("apps", "v1", "replicasets")):
        settings.watching.label_selectors[resource] = f"{LABEL_MANAGED}={MANAGED}"
    settings.watching.server_timeout = 300
    settings.watching.chunk_size = PAGE_SIZE
    settings.persistence.diffbase_storage = _NoState()
    settings.persistence.progress_storage = kopf.StatusProgressStorage()
    settings.queueing.idle_timeout = _IDLE_S
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = (1, 1, 2, 3, 5, 8, 13)
    return settings


class Watch(Protocol):
    """Passes the cluster's events to a controller."""

    async def run(self) -> None:
        """Watch until the process is told to stop."""


class Insights(Protocol):
    """The resources that kopf watches; it follows their changes when `revised` is notified."""

    watched_resources: set[kopf.Resource]
    revised: asyncio.Condition


def new_insights() -> Insights:
    """An empty one, of the type that `kopf.operator` states: kopf exports no name for it."""
    made: Insights = get_args(get_type_hints(kopf.operator)["insights"])[0]()
    return made


class KopfWatch:
    """Watches with kopf, which keeps its connections."""

    def __init__(self, controller: Controller, namespaces: tuple[str, ...]) -> None:
        self._controller, self._namespaces = controller, namespaces

    async def run(self) -> None:
        """Watch the cluster, or the namespaces, until the process is told to stop."""
        insights, clusterwide = new_insights(), not self._namespaces
        watching = kopf.operator(
            registry=registry_for(self._controller),
            settings=settings_for(clusterwide=clusterwide),
            insights=cast(Any, insights),
            standalone=True,
            clusterwide=clusterwide,
            namespaces=self._namespaces,
        )
        following = follow_definition(insights, self._controller.serves_plans)
        tasks = [asyncio.create_task(watching), asyncio.create_task(following)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


async def follow_definition(
    insights: Insights,
    serves_plans: Callable[[], Awaitable[bool]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Watch plans while the API server serves them, until cancelled.

    Kopf asks which resources there are once after each event of a definition. The API server may serve
    plans only after the last of these events, and refuse them only after the deletion. Kopf would then
    never watch them, or keep a watch that has ended. Without scanning it asks only at the start.
    `insights` is what kopf watches; `serves_plans` raises ApiError if the API server does not say.
    """
    while True:
        with contextlib.suppress(ApiError):
            served = await serves_plans()
            async with insights.revised:
                if served is not (_PLANS in insights.watched_resources):
                    change = insights.watched_resources.add if served else insights.watched_resources.discard
                    change(_PLANS)
                    insights.revised.notify_all()
        await sleep(_DEFINITION_POLL_S)


class _Handler(Protocol):
    def __call__(self, raw: Mapping[str, Any], /, *, deleted: bool) -> None: ...


def pass_on(event: kopf.RawEvent, handle: _Handler) -> None:
    """Handle an event, then drop what kopf does not need of it: it keeps the last one of each object a while.

    After a list of thousands these would be all in memory at once. Handlers keep no part of an event itself.
    """
    raw = cast(dict[str, Any], event["object"])
    handle(raw, deleted=event["type"] == "DELETED")
    for name in ("spec", "status"):
        raw.pop(name, None)
    raw["metadata"] = without_managed_fields(raw)["metadata"]


def registry_for(controller: Controller) -> kopf.OperatorRegistry:
    """The event handlers. They are stateless, so kopf writes nothing to any object."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event(GROUP, VERSION, "trainingplans", registry=registry)
    async def plan(event: kopf.RawEvent, **_: Any) -> None:
        pass_on(event, controller.on_plan)

    @kopf.on.event("batch", "v1", "jobs", registry=registry, labels={LABEL_MANAGED: MANAGED})
    async def job(event: kopf.RawEvent, **_: Any) -> None:
        pass_on(event, controller.on_job)

    @kopf.on.event("apps", "v1", "replicasets", registry=registry, labels={LABEL_MANAGED: MANAGED})
    async def rendezvous(event: kopf.RawEvent, **_: Any) -> None:
        pass_on(event, controller.on_rendezvous)

    @kopf.on.event("v1", "nodes", registry=registry)
    async def node(event: kopf.RawEvent, **_: Any) -> None:
        pass_on(event, controller.on_node)

    if controller.settings.device_class:

        @kopf.on.event(GROUP_OF_DEVICES, "resourceslices", registry=registry)
        async def devices(**_: Any) -> None:
            controller.requeue_waiting()

    return registry
