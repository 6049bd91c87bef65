"""Kill -9 at every write of a plan's life: before it arrives, and before its answer does."""

import logging
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from apiproxy import CUT
from life import Life

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
SIDE_BY_SIDE = 6  # lives
STRIDE = (
    3  # of the arrivals of one write in a life, every third is met by the axe; each life begins with another
)

# Filled by the tests in their order: every write of lives without faults with its story; where others were
# killed.
WRITES: dict[tuple[str, str], str] = {}
KILLS: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)


def every_third(first):
    """A choice of writes: over STRIDE lives, each arrival of each write once."""
    order = {write: index for index, write in enumerate(WRITES)}
    return lambda write, seen: (order.get(write, 0) + seen) % STRIDE == first


class Axe:
    """Kills the operator at chosen writes, and starts another at once.

    A write is known by the story's step and by what it does; an Event by that only, as it is told when there
    is time. `choose(write, seen)`: whether the axe falls, when so many of the same were seen before.
    """

    def __init__(self, house, village, side="none", choose=None):
        self.house, self.village, self.side, self.choose = house, village, side, choose
        self.step, self.arrived, self.kills, self.writes = "", Counter(), [], []
        self.lock = threading.Lock()
        self.operator = house.operator(namespaces=(village,), lease=village)
        self.operator.proxy.before, self.operator.proxy.after = self.before, self.after
        self.again()

    def again(self):
        self.operator.kill()
        try:
            self.house.forget_lease(self.village)
        finally:  # a server that has no time leaves the next one to wait for the Lease, not nobody
            self.operator.start()

    def before(self, request):
        with self.lock:
            return self._fall(request) if request.writes and self.side == "before" else None

    def after(self, request):
        with self.lock:
            if request.writes and self.side != "before":
                self.writes.append(self._known(request))
                return self._fall(request)
            return None

    def _known(self, request):
        return ("" if request.what == "POST events" else self.step, request.what)

    def _fall(self, request):
        write = self._known(request)
        seen, self.arrived[write] = self.arrived[write], self.arrived[write] + 1
        if self.side == "none" or not self.choose(write, seen):
            return None
        self.kills.append(write)
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
    """lived(*lives): each (story, side, choice) told side by side, and their plans gone without a rest.

    Each life has an operator and a namespace of its own; the API server and its controllers are everybody's.
    """

    def tell(number, story, side, choose=None):
        began = time.monotonic()
        name = f"{story}-{side}-{number}"
        told, launch = STORIES[story]
        axe = Axe(alone, villages(name), side, choose)
        life = Life(alone.api, axe.village, name, **launch)
        try:
            told(life, axe)
            axe.step = "delete"
            life.delete()
        except AssertionError as error:
            error.add_note(f"{name}, {len(axe.kills)} kills; {axe.operator.state}")
            raise
        LOG.info(f"{name}: {len(axe.kills)} kills, {time.monotonic() - began:.1f} s")
        return axe

    def all_of(*lives):
        with ThreadPoolExecutor(min(len(lives), SIDE_BY_SIDE)) as pool:
            told = [pool.submit(tell, number, *life) for number, life in enumerate(lives)]
        return [each.result() for each in told]

    yield all_of
    alone.end_all()


def test_lives_without_faults(lived):
    stories = [(story, "none") for story in STORIES]
    for axe, (story, _) in zip(lived(*stories), stories, strict=True):
        assert len(axe.writes) <= 60
        WRITES.update(dict.fromkeys(axe.writes, story))


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_operator_may_be_killed_at_any_write(lived, side):
    choices = [every_third(first) for first in range(STRIDE)]
    for axe in lived(*((story, side, choice) for choice in choices for story in STORIES)):
        assert axe.kills
        KILLS[side] += axe.kills


@pytest.mark.parametrize("side", ["before", "after"])
def test_no_write_is_left_out(lived, side):
    """A write that the others missed, because a kill before it made it needless, gets a life of its own."""
    missed = {write: story for write, story in WRITES.items() if write not in KILLS[side]}
    lives = [(story, side, lambda w, seen, at=write: (w, seen) == (at, 0)) for write, story in missed.items()]
    for axe in lived(*lives) if lives else ():
        KILLS[side] += axe.kills
    LOG.info(f"{len(KILLS[side])} kills {side} a write, {len(lives)} of them alone: {KILLS[side]}")
    assert set(KILLS[side]) >= WRITES.keys()
    assert len(KILLS[side]) >= 30
