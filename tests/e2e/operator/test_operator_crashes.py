"""Kill -9 at every write of a plan's life: before it arrives, and before its answer does."""

import logging
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from apiproxy import CUT
from life import Life

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
STRIDE = 3  # kills in one life are so many writes apart; each life begins with another write

# Filled by the tests in their order: every write of a life without faults, and where the others were killed.
WRITES: set[tuple[str, str]] = set()
KILLS: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)


class Axe:
    """Kills the operator at chosen writes, and starts another at once."""

    def __init__(self, house, village, side="none", first=0):
        self.house, self.village, self.side, self.first = house, village, side, first
        self.step, self.arrived, self.done, self.kills, self.writes = "", 0, set(), [], []
        self.lock = threading.Lock()
        self.operator = house.operator(namespaces=(village,), lease=village)
        self.operator.proxy.before, self.operator.proxy.after = self.before, self.after
        self.again()

    def again(self):
        self.operator.kill()
        self.house.forget_lease(self.village)
        self.operator.start()

    def before(self, request):
        with self.lock:
            if request.writes and self.side == "before" and self._falls(self.arrived):
                return self._fall(request, self.arrived)
            self.arrived += request.writes
            return None

    def after(self, request):
        with self.lock:
            if request.writes:
                self.writes.append((self.step, request.what))
            if request.writes and self.side == "after" and self._falls(self.arrived - 1):
                return self._fall(request, self.arrived - 1)
            return None

    def _falls(self, write):
        return write % STRIDE == self.first and write not in self.done

    def _fall(self, request, write):
        self.done.add(write)
        self.kills.append((self.step, request.what))
        self.again()
        return CUT


def train(life, axe):
    """A data parallel plan: launched, resized in place both ways, stopped, continued, changed, completed."""
    axe.step = "launch"
    life.create()
    life.until("Running")
    axe.step = "grow"
    life.edit(resources={"gpus": 2})
    life.until("Running", gpus=2)
    axe.step = "shrink"
    life.edit(resources={"gpus": 1})
    life.until("Running")
    axe.step = "suspend"
    life.edit(suspend=True)
    life.until("Suspended")
    axe.step = "resume"
    life.edit(suspend=False)
    life.until("Running")
    axe.step = "new attempt"
    life.edit(workload={"tokens": "90M"})
    life.until("Running", attempt=2)
    axe.step = "complete"
    life.end_pods()
    life.until("Complete", attempt=2)


def relayout(life, axe):
    """A plan whose framework reads a file, launched and resized by a new attempt."""
    axe.step = "launch with settings"
    life.create()
    life.until("Running")
    axe.step = "resize by a new attempt"
    life.edit(resources={"gpus": 2})
    life.until("Running", attempt=2, gpus=2)


STORIES = {"elastic": (train, {}), "deepspeed": (relayout, {"framework": "deepspeed"})}


@pytest.fixture
def lived(alone, villages):
    """lived(side, firsts): every story told once for each, side by side, and their plans gone without a rest.

    Each life has an operator and a namespace of its own; the API server and its controllers are everybody's.
    """

    def tell(story, side, first):
        began = time.monotonic()
        name = f"{story}-{side}-{first}"
        told, launch = STORIES[story]
        axe = Axe(alone, villages(name), side, first)
        life = Life(alone.api, axe.village, name, **launch)
        told(life, axe)
        axe.step = "delete"
        life.delete()
        LOG.info(
            f"{name}: {len(axe.writes)} writes, {len(axe.kills)} kills, {time.monotonic() - began:.1f} s"
        )
        return axe

    def all_of(side="none", firsts=(0,)):
        with ThreadPoolExecutor(len(STORIES) * len(firsts)) as pool:
            lives = [pool.submit(tell, story, side, first) for first in firsts for story in STORIES]
        return [each.result() for each in lives]

    yield all_of
    alone.end_all()


def test_lives_without_faults(lived):
    for axe in lived():
        assert len(axe.writes) <= 60
        WRITES.update(axe.writes)


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_operator_may_be_killed_at_any_write(lived, side):
    for axe in lived(side, range(STRIDE)):
        assert axe.kills
        KILLS[side] += axe.kills


def test_no_write_was_left_out():
    LOG.info(f"{sum(map(len, KILLS.values()))} fault points: {dict(KILLS)}")
    assert sum(map(len, KILLS.values())) >= 60
    for side in ("before", "after"):
        assert set(KILLS[side]) >= WRITES, side
