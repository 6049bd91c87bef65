"""Probes on this machine: when they end, and with real torchrun that nothing is left and the plan narrows."""

import functools
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from rightsizer_api import load
from rightsizer_engine.errors import InputError
from rightsizer_launch.running import calibration
from rightsizer_launch.running.probe import Interrupted, interval_ratio, probe_of
from rightsizer_launch.running.probe_end import TimeLimit
from rightsizer_launch.running.probe_plan import ProbeRequest
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import Record
from rightsizer_local import machine
from rightsizer_local.probe import LocalProbe

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-local"
MEASURED = {
    "matmul_flop_per_s": 8e10,
    "copy_bytes_per_s": 8e9,
    "all_reduce_bytes_per_s": 1e9,
    "together_step_s": 0.3,
    "alone_step_s": 0.2,
}


@functools.cache
def two_workers() -> machine.Machine:
    clusters = tuple(machine.cpu_cluster(MEASURED, workers=n, most=2, memory_bytes=8e9) for n in (1, 2))
    return machine.Machine(clusters=clusters, cuda=False, threads_per_worker=1, description="two cores")


def totals(count):
    records = [Record(event="step", time=float(i), step=i, step_s=0.5) for i in range(count)]
    return RunTotals().add(records)


@pytest.mark.parametrize(
    ("steps", "now_s", "reason"),
    [(0, 299.0, ""), (0, 300.0, "time of the probe"), (5, 10.0, ""), (90, 10.0, "measured 90 steps")],
    ids=["starting", "never a step", "few steps", "enough"],
)
def test_a_probe_ends_with_its_time_or_with_enough_steps(steps, now_s, reason):
    times = iter([0.0, now_s])
    limit = TimeLimit(limit_s=300.0, clock=lambda: next(times))
    limit(RunTotals())
    assert reason in limit(totals(steps))
    assert limit.fired is bool(reason)


def here(tmp_path, script, **launch):
    """The example's plan with a script of one's own, and its executor."""
    document = yaml.safe_load((EXAMPLE / "plan.yaml").read_text())
    (tmp_path / "own.py").write_text(script)
    document["spec"]["launch"] |= {"command": ["own.py"]} | launch
    document["spec"]["workload"]["tokens"] = "3M"
    document["spec"]["layout"] = {"microBatch": 8}  # or a slow measurement makes another one look better
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(document))
    plan = load(tmp_path / "plan.yaml")
    console = Console(record=True, width=200, file=io.StringIO())
    executor = LocalProbe(here=two_workers(), console=console, directory=tmp_path / "run")
    return plan, executor


def probed(plan, executor, tmp_path, *, limit_s):
    before = executor.answer(plan)
    wanted = ProbeRequest(
        plan=plan,
        target=before.option,
        request=before.request,
        clusters=tuple(executor.clusters),
        limit_s=limit_s,
        home=tmp_path,
    )
    probe = probe_of(wanted)
    return before, probe, executor.measure(probe)


def left_over(folder):
    """Processes that still run for this probe."""
    mark = f"RIGHTSIZER_RUN_DIRECTORY={folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if mark in text:
            found.append(path.parent.name)
    return found


PACED = """
import sys, time
import torch.distributed as dist
from rightsizer_launch import agent
dist.init_process_group("gloo")
agent.start()
while not agent.should_stop():
    time.sleep(float(sys.argv[1]))
    agent.step(tokens=2048, loss=1.0)
    if agent.should_checkpoint():
        home = agent.checkpoint_directory("nowhere")
        home.mkdir(parents=True, exist_ok=True)
        (home / f"rank-{dist.get_rank()}").touch()
        agent.checkpointed(home)
"""


@pytest.mark.torchrun
def test_a_plan_becomes_narrower_once_its_script_is_probed_on_both_workers(tmp_path, monkeypatch):
    """The script takes 1.3 times the predicted step time; the next plan uses the measurement."""
    monkeypatch.setenv(calibration.ENV_FILE, str(tmp_path / "calibration.json"))
    plan, executor = here(tmp_path, PACED)
    pace_s = 1.3 * executor.answer(plan).option.step_s
    plan, executor = here(tmp_path, PACED, args=[f"{pace_s:.3f}"])
    before, probe, (measured,) = probed(plan, executor, tmp_path, limit_s=60.0)
    assert (probe.option.gpus, measured.steps >= 5) == (2, True)
    assert measured.start_s > 0 < measured.checkpoint_s
    assert not (tmp_path / "run" / "checkpoints" / "rightsizer-probe").exists()
    assert left_over(tmp_path / "run") == []
    assert json.loads((tmp_path / "run" / "report.json").read_text())["name"] == "local-gpt-probe"
    model = before.request.architecture
    calibration.add(
        [replace(measured, case=replace(measured.case, architecture=model))], tmp_path / "calibration.json"
    )
    after = executor.answer(plan).option
    assert measured.step_s >= pace_s
    assert interval_ratio(after) < 0.9 * interval_ratio(before.option)
    assert after.step_s > 1.1 * before.option.step_s


@pytest.mark.torchrun
@pytest.mark.parametrize(
    ("script", "words"),
    [("", "too few steps"), ("import time\ntime.sleep(600)", "too few steps"), ("1 / 0", "failed before")],
    ids=["ends at once", "never a step", "fails"],
)
def test_a_script_that_measures_nothing_is_one_error_and_leaves_nothing(tmp_path, script, words):
    plan, executor = here(tmp_path, script, checkpoint=None)
    with pytest.raises(InputError, match=words):
        probed(plan, executor, tmp_path, limit_s=15.0)
    assert left_over(tmp_path / "run") == []


@pytest.mark.torchrun
def test_ctrl_c_ends_a_probe_without_a_result(tmp_path):
    script = f"import os, signal, time\nos.kill({os.getpid()}, signal.SIGINT)\ntime.sleep(600)"
    plan, executor = here(tmp_path, script, checkpoint=None)
    with pytest.raises(Interrupted):
        probed(plan, executor, tmp_path, limit_s=120.0)
    assert left_over(tmp_path / "run") == []
