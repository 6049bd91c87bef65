"""Kill -9 at every write of a plan's life: before it arrives, and before its answer does."""

import logging
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from apiproxy import CUT
from life import SimulatedRun

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]
LOG = logging.getLogger(__name__)
SIDE_BY_SIDE = 6  # lives
STRIDE = (
    3  # of the arrivals of one write in a life, every third is met by the axe; each life begins with another
)

TOLD = ("PATCH trainingplans/status", "POST events")  # more of them where a step takes over 4 s

# Filled by the tests in order: each write of runs without faults with its story; the writes at which
# operators were killed.
WRITES: dict[tuple[str, str], str] = {}
KILLS: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)


def every_third(first):
    """A choice of writes: over STRIDE lives, each arrival of each write once."""
    order = {write: index for index, write in enumerate(WRITES)}
    return lambda write, seen: (order.get(write, 0) + seen) % STRIDE == first


class OperatorKiller:
    """Kills the operator at chosen writes and starts another at once.

    A write is identified by the story's step and its description; an Event by its description only, because
    Events are written asynchronously. `choose(write, seen)` decides whether to kill, after `seen` equal
    writes.
    """

    def __init__(self, operators, namespace, side="none", choose=None):
        self.operators, self.namespace, self.side, self.choose = operators, namespace, side, choose
        self.step, self.arrived, self.kills, self.writes = "", Counter(), [], []
        self.lock = threading.Lock()
        self.operator = operators.operator(namespaces=(namespace,), lease=namespace)
        self.operator.proxy.before, self.operator.proxy.after = self.before, self.after
        self.restart()

    def restart(self):
        self.operator.kill()
        try:
            self.operators.delete_lease(self.namespace)
        finally:  # a server that has no time leaves the next one to wait for the Lease, not nobody
            self.operator.start()

    def before(self, request):
        with self.lock:
            return self._maybe_kill(request) if request.writes and self.side == "before" else None

    def after(self, request):
        with self.lock:
            if request.writes and self.side != "before":
                self.writes.append(self._write_id(request))
                return self._maybe_kill(request)
            return None

    def _write_id(self, request):
        return ("" if request.what == "POST events" else self.step, request.what)

    def _maybe_kill(self, request):
        write = self._write_id(request)
        seen, self.arrived[write] = self.arrived[write], self.arrived[write] + 1
        if self.side == "none" or not self.choose(write, seen):
            return None
        self.kills.append(write)
        self.restart()
        return CUT


def train(life, killer):
    """A data parallel plan: launched, resized in place both ways, stopped, continued, changed, completed."""
    killer.step = "launch"
    life.create()
    life.until("Running")
    killer.step = "grow"
    life.edit(resources={"gpus": 2})
    life.until("Running", gpus=2)
    killer.step = "shrink"
    life.edit(resources={"gpus": 1})
    life.until("Running")
    killer.step = "suspend"
    life.edit(suspend=True)
    life.until("Suspended")
    killer.step = "resume"
    life.edit(suspend=False)
    life.until("Running")
    killer.step = "new attempt"
    life.edit(workload={"tokens": "90M"})
    life.until("Running", attempt=2)
    killer.step = "complete"
    life.end_pods()
    life.until("Complete", attempt=2)


def relayout(life, killer):
    """A plan whose framework reads a file, launched and resized by a new attempt."""
    killer.step = "launch with settings"
    life.create()
    life.until("Running")
    killer.step = "resize by a new attempt"
    life.edit(resources={"gpus": 2})
    life.until("Running", attempt=2, gpus=2)


STORIES = {"elastic": (train, {}), "deepspeed": (relayout, {"framework": "deepspeed"})}


@pytest.fixture
def lived(alone, new_namespace):
    """lived(*lives): each (story, side, choice) told side by side, and their plans gone without a rest.

    Each life has an operator and a namespace of its own; the API server and its controllers are everybody's.
    """

    def tell(number, story, side, choose=None):
        began = time.monotonic()
        name = f"{story}-{side}-{number}"
        told, launch = STORIES[story]
        killer = OperatorKiller(alone, new_namespace(name), side, choose)
        life = SimulatedRun(alone.api, killer.namespace, name, **launch)
        try:
            told(life, killer)
            killer.step = "delete"
            life.delete()
        except AssertionError as error:
            error.add_note(f"{name}, {len(killer.kills)} kills; {killer.operator.state}")
            raise
        LOG.info(f"{name}: {len(killer.kills)} kills, {time.monotonic() - began:.1f} s")
        return killer

    def all_of(*lives):
        with ThreadPoolExecutor(min(len(lives), SIDE_BY_SIDE)) as pool:
            told = [pool.submit(tell, number, *life) for number, life in enumerate(lives)]
        return [each.result() for each in told]

    yield all_of
    alone.end_all()


def test_lives_without_faults(lived):
    stories = [(story, "none") for story in STORIES]
    for killer, (story, _) in zip(lived(*stories), stories, strict=True):
        assert sum(what not in TOLD for _, what in killer.writes) <= 20
        assert len(killer.writes) <= 70  # 60 on an idle machine
        WRITES.update(dict.fromkeys(killer.writes, story))


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_operator_may_be_killed_at_any_write(lived, side):
    choices = [every_third(first) for first in range(STRIDE)]
    for killer in lived(*((story, side, choice) for choice in choices for story in STORIES)):
        assert killer.kills
        KILLS[side] += killer.kills


@pytest.mark.parametrize("side", ["before", "after"])
def test_no_write_is_left_out(lived, side):
    """A write that the others missed, because a kill before it made it needless, gets a life of its own."""
    missed = {write: story for write, story in WRITES.items() if write not in KILLS[side]}
    lives = [(story, side, lambda w, seen, at=write: (w, seen) == (at, 0)) for write, story in missed.items()]
    for killer in lived(*lives) if lives else ():
        KILLS[side] += killer.kills
    LOG.info(f"{len(KILLS[side])} kills {side} a write, {len(lives)} of them alone: {KILLS[side]}")
    assert set(KILLS[side]) >= WRITES.keys()
    assert len(KILLS[side]) >= 30
