"""`rightsizer probe`, with an executor that finishes at once: what it refuses, records and says."""

import json
from dataclasses import replace

import pytest

from rightsizer_api import load, sizing
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.observation import observe
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.size import size
from rightsizer_launch.running import calibration
from rightsizer_launch.running.probe import Interrupted, no_steps
from rightsizer_launch.running.probe_run import ProbeOptions, run_probe

H100 = "H100-SXM5-80GB"
OPTIONS = ProbeOptions(limit_s=300.0)


class Instant:
    """Measures `slower` times the prediction, with 12 s of start-up and 30 s of checkpoint."""

    clusters = (lookup.cluster(H100),)

    def __init__(self, *, slower=1.0, raises=None):
        self.slower, self.raises = slower, raises

    def answer(self, plan):
        return size(calibration.calibrated(sizing.resolve(plan).request()), compared=False)

    def measure(self, probe):
        if self.raises:
            raise self.raises(probe)
        resolved = sizing.resolve(probe.plan)
        case = Case(
            architecture=resolved.architecture,
            workload=resolved.workload,
            cluster=probe.option.cluster,
            framework=resolved.framework,
            layout=probe.option.layout,
        )
        found = observe(
            case,
            run="one",
            step_s=[self.slower * probe.option.step_s] * 60,
            allocated_bytes=probe.option.allocated_bytes,
        )
        return (replace(found, start_s=12.0, checkpoint_s=30.0),)


@pytest.fixture
def probe(tmp_path, monkeypatch):
    monkeypatch.setenv(calibration.ENV_FILE, str(tmp_path / "calibration.json"))
    spec = {
        "model": {"name": "meta-llama/Llama-3.1-8B"},
        "workload": {"tokens": "100B"},
        "deadline": {"finishWithin": "72h"},
        "resources": {"gpuTypes": [H100]},
        "launch": {"framework": "torchtitan", "command": ["train.py"], "checkpoint": {"path": "/ckpt"}},
    }
    head = {"apiVersion": "rightsizer.dev/v1alpha1", "kind": "TrainingPlan", "metadata": {"name": "p"}}
    file = tmp_path / "plan.json"

    def run(executor=None, options=OPTIONS, **launch):
        document = head | {"spec": spec | {"launch": spec["launch"] | launch}}
        file.write_text(json.dumps(document))
        said = []
        done = run_probe(load(file), options, executor=lambda: executor or Instant(), say=said.append)
        return "\n".join(said) if done else None

    run.file = file
    run.records = tmp_path / "calibration.json"
    return run


def factors(said):
    """Upper over lower end of the interval, before and after."""
    line = next(line for line in said.splitlines() if line.startswith("plan: "))
    before, after = line.split("(a factor ")[1].split(")")[0].split(" -> ")
    return float(before), float(after)


def test_the_next_plan_is_narrower_by_a_printed_amount(probe):
    said = probe(Instant(slower=1.1))
    before, after = factors(said)
    assert after < 0.85 * before
    assert "(1.10 x)" in said
    assert "start-up: 12s" in said
    assert "checkpoint: 30s to write" in said
    assert "opens with " in said
    assert ", reserve " in said
    known = calibration.load(probe.records).evidence
    assert [(run.steps, run.start_s) for run in known] == [(59, 12.0)]
    request = calibration.calibrated(sizing.resolve(load(probe.file)).request())
    assert request.calibration is not None, "the next `rightsizer plan` knows it"


def test_a_layout_that_looks_better_once_the_probed_one_is_slow_is_to_be_probed_too(probe):
    assert "not the probed one" not in probe(Instant(slower=1.0))
    assert "not the probed one" in probe(Instant(slower=2.0))


def test_a_dry_run_prints_a_plan_and_records_nothing(probe, tmp_path):
    said = probe(options=replace(OPTIONS, dry_run=True))
    (tmp_path / "printed.yaml").write_text(said)
    assert load(tmp_path / "printed.yaml").metadata.name == "p-probe"
    assert not probe.records.exists()


@pytest.mark.parametrize(
    ("launch", "options", "words"),
    [
        ({"command": []}, OPTIONS, "command"),
        ({"command": ["torchrun", "train.py"]}, OPTIONS, "command"),
        ({}, replace(OPTIONS, limit_s=5.0), "--time"),
        ({}, replace(OPTIONS, gpus=100_000), "--gpus"),
    ],
    ids=["no command", "a launcher", "no time", "too many GPUs"],
)
def test_what_cannot_be_probed_is_one_error_before_anything_runs(probe, launch, options, words):
    with pytest.raises(InputError, match=words):
        probe(Instant(raises=AssertionError), options, **launch)


def test_without_a_calibration_file_a_probe_has_nowhere_to_record(probe, monkeypatch):
    monkeypatch.setenv(calibration.ENV_FILE, "")
    with pytest.raises(InputError, match=calibration.ENV_FILE):
        probe(Instant(raises=AssertionError))


def test_a_probe_without_a_step_records_nothing(probe):
    with pytest.raises(InputError):
        probe(Instant(raises=no_steps))
    assert not probe.records.exists()


def test_a_probe_that_the_user_stops_records_nothing(probe):
    assert probe(Instant(raises=lambda _: Interrupted())) is None
    assert not probe.records.exists()
