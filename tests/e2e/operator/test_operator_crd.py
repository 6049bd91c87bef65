"""The plans' CustomResourceDefinition is missing at first, or goes and comes back, under a real operator."""

from pathlib import Path

import pytest
from life import SimulatedRun

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
DEFINITION = Path(__file__).resolve().parents[3] / "helm/rightsizer/crds/trainingplans.rightsizer.dev.yaml"
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingplans.rightsizer.dev"


class Definition:
    """The definition in the cluster, and the operator that it is for; no relist helps the watches."""

    def __init__(self, cluster, operators, namespace):
        self.cluster, self.api, self.namespace = cluster, operators.api, namespace
        operators.delete_lease()
        self.operator = operators.operator(refresh_s=3600.0)

    def goes(self):
        self.api("DELETE", PATH)
        gone = lambda: self.api("GET", PATH)["kind"] == "Status"
        self.cluster.wait("no definition", gone, within_s=60)

    def comes(self):
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", DEFINITION)

    def answers(self, status):
        """Wait until it is ready (200) or not (503), alive all the time."""
        ready = lambda: self.operator.get("/readyz")[0] == status and self.operator.get("/healthz")[0] == 200
        self.cluster.wait(f"readiness {status}", self.quietly(ready), within_s=60)

    @staticmethod
    def quietly(condition):
        def holds():
            try:
                return condition()
            except OSError:  # it does not listen yet
                return False

        return holds

    def runs(self, name):
        run = SimulatedRun(self.api, self.namespace, name)
        run.create()
        run.until("Running")


@pytest.fixture
def definition(cluster, alone, namespace):
    made = Definition(cluster, alone, namespace)
    yield made
    made.comes()
    alone.end_all()


def test_an_operator_that_starts_first_waits_unready_and_then_watches_at_once(definition):
    definition.goes()
    definition.operator.start()
    definition.answers(503)
    definition.comes()
    definition.answers(200)
    definition.runs("first")


def test_a_definition_that_is_deleted_and_applied_again_is_watched_again(definition):
    definition.operator.start()
    definition.answers(200)
    definition.runs("before")
    pid = definition.operator.pid
    definition.goes()
    definition.answers(503)
    definition.comes()
    definition.answers(200)
    definition.runs("after")
    assert (definition.operator.pid, Path(f"/proc/{pid}").exists()) == (pid, True)
