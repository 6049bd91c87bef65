"""A plan whose rate differs from the prediction: the test is rank 0, and the API server is a real one."""

import logging
import threading
import time
import uuid

import pytest
from life import SimulatedRun

from rightsizer_launch.worker.metrics import TrainMetrics, serve
from rightsizer_operator.values.names import METRICS_PORT

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]
LOG = logging.getLogger(__name__)
HASTE = {
    "measure_s": 2.0,
    "decide_s": 2.0,
    "window_s": 24.0,
    "warm_up_s": 2.0,
    "cool_down_s": 2.0,
    "restart_s": 1.0,
    "resize_s": 20.0,
}
BATCH = 24 * 128


class Rank0:
    """The metrics of rank 0, at a rate that the test sets."""

    def __init__(self):
        self.metrics, self.rate, self.workers, self.tokens = TrainMetrics(), 0.0, 1, 0.0
        self.metrics.enter("training")
        self._server = serve(self.metrics, port=METRICS_PORT)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._train)
        self._thread.start()

    def _train(self):
        last = time.monotonic()
        while not self._stop.wait(0.1):
            now = time.monotonic()
            self.tokens += self.rate * (now - last)
            last = now
            self.metrics.set(
                position_tokens=self.tokens,
                tokens_per_second=self.rate,
                step=self.tokens // BATCH,
                workers=self.workers,
            )

    def close(self):
        self._stop.set()
        self._thread.join()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def rank_0():
    made = Rank0()
    yield made
    made.close()


@pytest.fixture
def slow(alone, namespace, rank_0):
    """slow(mode): a plan sized to one GPU that at its real pace takes 1.3 times as long as it may.

    One GPU is predicted to be in time at the plan's confidence, and two really are.
    """
    life = SimulatedRun(alone.api, namespace, f"p{uuid.uuid4().hex[:6]}")
    life.address = "127.0.0.1"
    spec = life.plan["spec"]
    del spec["resources"]["gpus"]
    spec["launch"]["checkpoint"]["interval"] = "5s"

    def begin(mode):
        spec["elasticity"] = {"mode": mode}
        alone.delete_lease()
        operator = alone.operator(**HASTE).start()
        life.create()
        life.until("Running")
        sized = life.now["status"]["sizing"]
        within_s = 1.2 * sized["finishAtConfidenceSeconds"]
        rank_0.rate = sized["tokensPerSecond"] * sized["finishSeconds"] / (1.3 * within_s)
        life.edit(deadline={"finishWithin": f"{within_s:.0f}s"})
        life.until("Running")
        return life, operator

    yield begin
    alone.end_all()


def _recommended(life):
    return life.now["status"].get("recommendation", {}).get("action")


def test_mode_recommend_reports_a_resize_and_does_not_do_it(slow):
    life, operator = slow("Recommend")
    life.wait("a recommendation", lambda: _recommended(life) == "Grow", 300)
    said = life.now["status"]["recommendation"]
    LOG.info(f"{said}")
    assert "mode is Recommend" in said["reason"]
    assert any("tokens/s" in line for line in said["evidence"])
    assert life.jobs[0]["spec"]["parallelism"] == 1
    assert "rightsizer_plan_recommended_gpus{" in operator.get("/metrics")[1]


def test_a_late_plan_grows_in_place_by_itself(slow, rank_0):
    life, operator = slow("Auto")
    grown = lambda: life.jobs[0]["spec"]["parallelism"] > 1
    life.wait("growth", grown, 300)
    gpus = life.jobs[0]["spec"]["parallelism"]
    rank_0.workers, rank_0.rate = gpus, gpus * rank_0.rate
    life.until("Running", gpus=gpus)
    row = life.now["status"]["resizes"][-1]
    LOG.info(f"{row}")
    assert (row["fromGPUs"], row["toGPUs"], row["cause"]) == (1, gpus, "Measured")
    assert 'rightsizer_operator_resizes_total{cause="Measured"} 1.0' in operator.get("/metrics")[1]


def test_growth_that_does_not_come_up_is_taken_back(slow):
    life, _ = slow("Auto")
    life.wait("growth", lambda: life.jobs[0]["spec"]["parallelism"] > 1, 300)
    life.wait("the way back", lambda: life.jobs[0]["spec"]["parallelism"] == 1, 300)
    row = life.now["status"]["resizes"][-1]
    assert (row["toGPUs"], row["cause"]) == (1, "Failure")
    life.until("Running")
