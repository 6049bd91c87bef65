"""Twelve hours of a plan with the shipped intervals and `interval: auto`, on a simulated clock."""

import copy
import datetime as dt

import pytest

from rightsizer_engine.domain.reading import Reading
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.measure.gpu_counters import Counters
from rightsizer_operator.measure.resize_advisor import Advisor
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.snapshot import ReportedProgress

KEY = ("team", "demo")
STEP_TOKENS = 512 * 2048
HOUR_S = 3600.0
START_S = 240.0  # from the launch of a size to its first step
SAVE_S = 90.0
SPEC = {
    "model": {"dimensions": None, "name": "meta-llama/Llama-3.1-8B"},
    "workload": {"tokens": "100B", "sequenceLength": 2048, "globalBatchSequences": 512, "precision": "bf16"},
    "deadline": {"finishWithin": "130h"},
    "resources": {"gpus": None, "minGPUs": 8, "maxGPUs": None, "gpusPerNode": 8},
    "layout": None,
    "launch": {"framework": "torchtitan", "command": ["train.py"]},
    "elasticity": {"mode": "Auto"},
}


class Replay:
    """A plan that trains at `pace` times the predicted rate at every size, and the operator's advisor.

    Simulated are the clock, the cluster that carries actions out, and rank 0. Another job waits for GPUs.
    """

    def __init__(self, run, *, pace):
        self.run, self.pace = run.settle(), pace
        self.now_s, self.first = 0.0, run.now
        self.tokens = self.saving_s = self.saved_s = 0.0
        self.launched_s, self.dead_s = 0.0, (-1.0, -1.0)
        self.cache, self.version = Cache(), 0
        for node in run.nodes:
            self.cache._store_node(node)
        self.cache.wanted = {self.status["sizing"]["gpuType"]}
        self.advisor = self.new_operator()
        self._pods(ready=True)

    def new_operator(self):
        return Advisor(self.run.settings, monotonic=lambda: self.now_s, unix=self.unix_s)

    def unix_s(self):
        return self.first.timestamp() + self.now_s

    @property
    def status(self):
        return self.run.plan["status"]

    @property
    def interval_s(self):
        return self.status["sizing"]["checkpointIntervalSeconds"]

    @property
    def resizes(self):
        return [(row["fromGPUs"], row["toGPUs"], row["cause"]) for row in self.status.get("resizes", ())]

    def advance(self, hours):
        """Scrape and decide as the settings say; reconcile decisions at once, the rest less often."""
        every_s, until_s = self.run.settings.measure_s, self.now_s + hours * HOUR_S
        while self.now_s < until_s:
            self.now_s += every_s
            self.run.now = self.first + dt.timedelta(seconds=self.now_s)
            phase = self._train(every_s)
            if not self.dead_s[0] <= self.now_s < self.dead_s[1]:
                self._operate(phase)
        return self

    def operator_is_away(self, *, after_h, for_s):
        """The operator ends after that time, and another one starts that much later."""
        self.dead_s = (after_h * HOUR_S, after_h * HOUR_S + for_s)
        self.advance(after_h)
        self.advisor = self.new_operator()
        return self

    def _train(self, for_s):
        since_save_s = self.now_s - max(self.saved_s, self.launched_s + START_S)
        if since_save_s <= 0:
            return "startup"
        if since_save_s < self.interval_s:
            self.tokens += self.pace * self.status["sizing"]["tokensPerSecond"] * for_s
            return "training"
        self.saving_s += for_s
        if since_save_s >= self.interval_s + SAVE_S:
            self.saved_s = self.now_s
        return "checkpoint"

    def _operate(self, phase):
        step, attempt = int(self.tokens / STEP_TOKENS), self.status["attempt"]
        progress = ReportedProgress(
            tokens=float(step * STEP_TOKENS),
            tokens_per_s=self.pace * self.status["sizing"]["tokensPerSecond"],
            step=step,
            restarts=len(self.resizes),
            workers=attempt["gpus"],
            phase=phase,
            checkpoint_s=self.saving_s,
        )
        self.advisor.record(self.run.plan, progress, at_s=self.now_s)
        work = self.advisor.due_work(KEY, self.cache, now_s=self.now_s)
        if work is not None:
            work()
            decision = self.advisor.decision(self.run.plan)
            if (decision and decision.act) or self.now_s % 600.0 < 60.0 or self._starts:
                self._reconcile(progress)

    @property
    def _starts(self):
        return self.now_s - self.launched_s < 2 * START_S

    def _reconcile(self, progress):
        run, before = self.run, self.status["attempt"]["gpus"]
        run.progress, run.decision = progress, self.advisor.decision(run.plan)
        run.samples = self.advisor.samples(run.plan)
        run.settle()
        self.advisor.consume(KEY, run.decision)
        run.decision = None
        changed = self.status["attempt"]["gpus"] != before
        if changed:
            self.launched_s = self.now_s
        if changed or self._starts:
            self._pods(ready=self.now_s - self.launched_s >= START_S)
        self._store()

    def _pods(self, *, ready):
        """The pods of earlier attempts end; those of the present one start."""
        newest = f"demo-a{self.status['attempt']['number']}"
        self.run.jobs = {name: job for name, job in self.run.jobs.items() if name == newest}
        self.run.settle()
        job = self.run.job(self.status["attempt"]["number"])
        job["status"]["ready"] = job["spec"]["parallelism"] if ready else 0
        self.run.settle()
        self._store()

    def _store(self):
        self.version += 1
        metadata = self.run.plan["metadata"]
        metadata["resourceVersion"] = str(self.version)
        self.cache.set_plan({**self.run.plan, "metadata": dict(metadata)})
        for name, job in self.run.jobs.items():
            stored = copy.deepcopy(job)
            stored["metadata"] |= {"resourceVersion": str(self.version), "uid": name}
            self.cache.set_job(stored)


@pytest.fixture
def replay(fake_cluster):
    """replay(pace): the plan on a cluster of 256 GPUs, under an operator as shipped."""
    return lambda pace: Replay(fake_cluster(SPEC, nodes=32), pace=pace)


def test_the_shipped_settings_are_replayed(replay):
    case = replay(1.0)
    assert case.run.settings == OperatorSettings()
    assert case.interval_s > HOUR_S


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pace", "grows"), [(0.67, True), (2.0, False)], ids=["too-slow-grows", "too-fast-shrinks"]
)
def test_within_twelve_hours_a_wrong_size_is_corrected_and_never_taken_back(replay, pace, grows):
    case = replay(pace).advance(12)
    assert 1 <= len(case.resizes) <= 2
    for before, after, cause in case.resizes:
        assert (after > before, cause) == (grows, "Measured")
    assert case.run.condition("DeadlineAtRisk")["status"] == "False"


def test_a_plan_without_progress_since_its_first_step_is_idle(replay):
    case = replay(0.0)
    unused = Reading(
        window_s=case.run.settings.window_s,
        gpu_busy_mean=0.0,
        gpu_busy_max=0.0,
        tensor_active=0.0,
        power_fraction=0.1,
    )
    case.advisor.set_counters(Counters(readings={KEY: unused}))
    case.advance(1)
    assert case.run.condition("Idle")["status"] == "True"


def test_a_plan_opens_small_and_grows_at_its_first_look_within_its_reserve(replay):
    case = replay(0.67)
    opening = case.status["sizing"]["opening"]
    assert case.status["attempt"]["gpus"] == opening["gpus"] < opening["staticGPUs"]
    case.advance((START_S + opening["lookAfterSeconds"] - 60.0) / HOUR_S)
    assert case.resizes == []
    case.advance(3 * 60.0 / HOUR_S)
    ((before, after, _),) = case.resizes
    assert before < after <= opening["reserveGPUs"]
    assert case.status["sizing"]["opening"] == opening


@pytest.mark.slow
def test_a_right_size_stays_for_twelve_hours_with_few_marks(replay):
    case = replay(1.0).advance(12)
    assert case.resizes == []
    assert len(case.status["samples"]) <= 48
    assert len(case.advisor._memories[KEY].marks) <= 400


@pytest.mark.slow
def test_a_new_operator_continues_with_the_window_of_the_one_before(replay):
    case = replay(2.0)
    case.operator_is_away(after_h=4.0, for_s=900.0).advance(4.0)
    ((before, after, _),) = case.resizes
    assert after < before
