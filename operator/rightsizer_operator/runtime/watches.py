"""kopf's part: the watches, their reconnects and their back-offs. Handlers only pass the news on."""

from typing import Any

import kopf

from rightsizer_api.plan import GROUP, VERSION
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.values.names import LABEL_MANAGED, MANAGED

__all__ = ["registry_for", "settings_for"]


_IDLE_S = 0.2  # after its last news, kopf keeps an object so long in memory


class _NoState(kopf.DiffBaseStorage):
    """Nothing is compared with what it was: kopf need not copy every object for that, at every event."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """No field matters."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Nothing was kept."""
        return None

    def store(self, **_: Any) -> None:
        """Nothing is kept."""


def settings_for() -> kopf.OperatorSettings:
    """Kopf told to keep no state of its own, to ask only for what is ours, and to be patient with errors."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.label_selectors["batch", "v1", "jobs"] = f"{LABEL_MANAGED}={MANAGED}"
    settings.watching.server_timeout = 300
    settings.watching.chunk_size = 250
    settings.persistence.diffbase_storage = _NoState()
    settings.persistence.progress_storage = kopf.StatusProgressStorage()
    settings.queueing.idle_timeout = _IDLE_S
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = (1, 1, 2, 3, 5, 8, 13)
    return settings


def registry_for(controller: Controller) -> kopf.OperatorRegistry:
    """The handlers, all of them without state: kopf then writes nothing into any object."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event(GROUP, VERSION, "trainingplans", registry=registry)
    async def plan(event: kopf.RawEvent, **_: Any) -> None:
        controller.saw_plan(event["object"], gone=event["type"] == "DELETED")

    @kopf.on.event("batch", "v1", "jobs", registry=registry, labels={LABEL_MANAGED: MANAGED})
    async def job(event: kopf.RawEvent, **_: Any) -> None:
        controller.saw_job(event["object"], gone=event["type"] == "DELETED")

    @kopf.on.event("v1", "nodes", registry=registry)
    async def node(event: kopf.RawEvent, **_: Any) -> None:
        controller.saw_node(event["object"], gone=event["type"] == "DELETED")

    return registry
