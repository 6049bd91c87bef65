"""Kopf is started anew when the API server begins or ends to serve plans."""

import asyncio

import pytest

from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.runtime.watches import KopfWatch, pass_on

OVERLOADED = ApiError(503, "overloaded")


class Served:
    """A stand-in for the controller: what the API server answers, in order; then nothing changes."""

    settings = None

    def __init__(self, *answers):
        self.answers = list(answers)

    async def serves_plans(self):
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


def starts(*answers, namespaces=("team",), ends_itself=False):
    """The starts of kopf while the API server gives these responses, and the end of each run."""

    async def scenario():
        controller, ended = Served(*answers), []
        controller.settings = type("settings", (), {"device_class": ""})

        async def operate(*, stop_flag, **options):
            assert options["namespaces"] == namespaces
            assert options["clusterwide"] is not bool(namespaces)
            if ends_itself:
                ended.append("itself")
                return
            try:
                await stop_flag.wait()
                ended.append("stopped")
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        async def sleep(_):
            await asyncio.sleep(0)

        watching = asyncio.create_task(KopfWatch(controller, namespaces, operate=operate, sleep=sleep).run())
        for _ in range(50):
            await asyncio.sleep(0)
        finished = watching.done()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)
        return ended, finished

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answers", "ended"),
    [
        ((True, True, True), ["cancelled"]),
        ((False, False, True, True), ["stopped", "cancelled"]),
        ((True, False, False, True), ["stopped", "stopped", "cancelled"]),
        ((OVERLOADED, True, OVERLOADED, True), ["cancelled"]),
    ],
    ids=["served", "comes", "goes and comes", "unclear"],
)
def test_kopf_starts_anew_when_plans_begin_or_cease_to_be_served(answers, ended):
    assert starts(*answers) == (ended, False)


def test_the_watch_ends_when_kopf_does():
    """Kopf handles SIGTERM: the process ends with it."""
    assert starts(True, True, ends_itself=True) == (["itself"], True)


def test_a_whole_cluster_is_watched_without_namespaces():
    assert starts(True, True, namespaces=()) == (["cancelled"], False)


def test_kopf_keeps_only_its_own_fields_of_an_event():
    event = {
        "type": "MODIFIED",
        "object": {"metadata": {"name": "n1", "managedFields": [{}]}, "spec": {"a": 1}, "status": {}},
    }
    told = []
    pass_on(event, lambda raw, *, deleted: told.append((raw["spec"], deleted)))
    assert (told, event["object"]) == ([({"a": 1}, False)], {"metadata": {"name": "n1"}})
