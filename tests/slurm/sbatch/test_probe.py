"""`rightsizer probe --slurm` against a stand-in for Slurm's commands: followed, ended, never left behind."""

import json

import pytest

from rightsizer_api import load
from rightsizer_engine.errors import InputError
from rightsizer_launch.running.probe import Interrupted, probe_of
from rightsizer_launch.running.probe_plan import ProbeRequest
from rightsizer_launch.worker.progress import PROGRESS, Record, append
from rightsizer_slurm.sbatch.command import SbatchOptions
from rightsizer_slurm.sbatch.probe import SlurmProbe

PLAN = """
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 4, hidden: 192, heads: 4, vocab: 256}}
  workload: {tokens: 1B, sequenceLength: 128, globalBatchSequences: 16}
  deadline: {finishWithin: 30h}
  resources: {minGPUs: 2, maxGPUs: 2, gpusPerNode: 1}
  launch: {framework: ddp, command: [train.py], checkpoint: {path: ckpt, grace: 30s}}
"""


class Job:
    """Job 42: at each sleep two seconds pass and `steps` steps are recorded; USR1 saves and ends it."""

    def __init__(self, fake, folder, *, steps, ends_at_s=None, saves=True, interrupted=False):
        self.interrupted = interrupted
        self.fake, self.folder, self.steps, self.now_s = fake, folder, steps, 0.0
        self.ends_at_s, self.saves, self.recorded = ends_at_s, saves, 0
        self.state("RUNNING")

    def state(self, name):
        self.fake.prints(
            "squeue",
            json.dumps({"jobs": [{"job_id": 42, "job_state": [name], "start_time": 100}]}),
        )

    def sleep(self, seconds):
        if self.interrupted:
            raise KeyboardInterrupt
        self.now_s += seconds
        asked = self.fake.calls("scancel")
        if asked and self.saves:
            self._record("checkpoint")
        if (asked and self.saves) or (self.ends_at_s is not None and self.now_s >= self.ends_at_s):
            self.state("COMPLETED")
            return
        for _ in range(self.steps):
            self._record("step")

    def _record(self, event):
        self.recorded += 1
        append(
            self.folder / PROGRESS,
            Record(event=event, time=110.0 + self.recorded, step=self.recorded, step_s=0.5, world=2),
        )


@pytest.fixture
def measure(tmp_path, fake_slurm):
    """measure(steps=...): what the probe of PLAN measures on the stand-in, and its job."""

    def run(**behaviour):
        (tmp_path / "plan.yaml").write_text(PLAN)
        folder, plan = tmp_path / "run", load(tmp_path / "plan.yaml")
        folder.mkdir()
        job = Job(fake_slurm, folder, **behaviour)
        executor = SlurmProbe(
            options=SbatchOptions(directory=folder),
            say=lambda _text: None,
            slurm=fake_slurm.slurm,
            sleep=job.sleep,
            clock=lambda: job.now_s,
        )
        answer = executor.answer(plan)
        fake_slurm.prints("squeue", '{"jobs": []}')
        wanted = ProbeRequest(
            plan=plan,
            target=answer.option,
            request=answer.request,
            clusters=tuple(executor.clusters),
            limit_s=60.0,
            home=tmp_path,
        )
        probe = probe_of(wanted)
        job.state("RUNNING")
        return executor.measure(probe)

    return run


def test_a_job_is_submitted_with_a_short_limit_measured_and_made_to_save(measure, fake_slurm, tmp_path):
    (found,) = measure(steps=10)
    assert (found.step_s, found.case.layout.gpus) == (0.5, 2)
    assert found.start_s == 11.0, "from the job's start to the end of its first step"
    assert found.checkpoint_s > 0
    assert fake_slurm.calls("scancel") == ["--batch --signal=USR1 42"]
    script = (tmp_path / "run" / "job.sbatch").read_text()
    assert "#SBATCH --time=16\n" in script
    assert "trap 'stop cancelled' USR1" in script, "never requeued, even if nobody follows it any more"


@pytest.mark.parametrize(
    ("behaviour", "words", "ended"),
    [
        ({"steps": 0}, "too few steps", ["--batch --signal=USR1 42"]),
        ({"steps": 0, "ends_at_s": 4.0}, "failed before", []),
        ({"steps": 0, "saves": False}, "too few steps", ["--batch --signal=USR1 42", "42"]),
    ],
    ids=["never a step", "ends at once", "does not stop"],
)
def test_what_measures_nothing_is_one_error_and_no_job_stays(measure, fake_slurm, behaviour, words, ended):
    with pytest.raises(InputError, match=words):
        measure(**behaviour)
    assert fake_slurm.calls("scancel") == ended


def test_ctrl_c_cancels_the_job(measure, fake_slurm):
    with pytest.raises(Interrupted):
        measure(steps=1, interrupted=True)
    assert fake_slurm.calls("scancel") == ["42"]
