import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_launch.stacks.log_lines import FORMATS, Progress
from rightsizer_launch.worker.progress import ProgressReader

LINES = {
    "megatron": " [2026-01-02 03:04:05.678901] iteration       20/     500 | consumed samples:         5120 |"
    " elapsed time per iteration (ms): 812.5 | throughput per GPU (TFLOP/s/GPU): 401.3 |"
    " learning rate: 1.500000E-05 | global batch size:   256 | lm loss: 9.876543E+00 | loss scale: 1.0 |"
    " grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |",
    "nemo": "Training epoch 0, iteration 19/499 | lr: 2.9e-06 | global_batch_size: 256 | global_step: 19"
    " | reduced_train_loss: 9.877 | train_step_timing in s: 0.8125 | consumed_samples: 5120",
    "nanotron": "01/02/2026 03:04:05 [INFO|DP=0|PP=0|TP=0]: iteration: 20 / 500 | consumed_tokens: 10.5M"
    " | time_per_iteration_ms: 812 | tokens_per_sec: 645K | global_batch_size: 524K | lm_loss: 9.88",
    "torchtune": "Step 20 | loss:9.876543 lr:2e-05 tokens_per_second_per_gpu:1024.5 peak_memory_active:12.3 ",
}
COUNTED = {"megatron": 5120, "nemo": 5120}

SCRIPT = """
import sys
for step in (10, 20, 40):
    print(f"Step {step} | ", end="")
    print(f"loss:{80 / step} lr:1e-05 ", end="")
    print()
    print("something else: Step 3", file=sys.stderr)
"""


def observe(folder, stack, script, **variables):
    (folder / "train.py").write_text(script)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RIGHTSIZER_")}
    plan = {"RIGHTSIZER_GLOBAL_BATCH_SEQUENCES": "4", "RIGHTSIZER_SEQUENCE_TOKENS": "100"}
    argv = [sys.executable, "-W", "error", "-m", "rightsizer_launch.stacks.observe", stack, "train.py"]
    environment = clean | plan | {"RIGHTSIZER_RUN_DIRECTORY": str(folder)} | variables
    subprocess.run(argv, cwd=folder, env=environment, check=True, capture_output=True, timeout=60)
    return ProgressReader(folder / "progress.jsonl").read()


@pytest.mark.parametrize("stack", FORMATS)
def test_a_stacks_own_line_is_read(stack):
    read = FORMATS[stack].parse(LINES[stack])
    assert read.step == 20
    assert read.loss == pytest.approx(9.877, abs=0.01)
    assert read.sequences == COUNTED.get(stack)


@pytest.mark.parametrize("stack", FORMATS)
def test_a_line_of_something_else_reports_nothing(stack):
    others = [line for name, line in LINES.items() if name != stack]
    assert [FORMATS[stack].parse(line) for line in ("", "validation loss at iteration 20", *others)] == [
        None
    ] * 5


@pytest.mark.parametrize("loss", ["nan", "inf", "1e999", "-", ""])
def test_a_loss_that_is_no_finite_number_is_left_out(loss):
    assert FORMATS["torchtune"].parse(f"Step 7 | loss:{loss} lr:1") == Progress(step=7)


@given(st.text(st.sampled_from(" iteration:Step|/0123456789.eE-consumed samples"), max_size=5000))
def test_no_line_breaks_a_parser(line):
    for form in FORMATS.values():
        read = form.parse(line)
        assert read is None or read.step >= 0


@pytest.mark.parametrize(
    "line", ["iteration " + "9" * 5000, "| " * 5000, "Training epoch 0, iteration 1/2 |" * 200]
)
def test_a_long_line_is_no_step(line):
    assert [form.parse(line) for form in FORMATS.values()] == [None] * len(FORMATS)


def test_an_unmodified_script_is_measured_by_its_output(tmp_path):
    start, one, two, finish = observe(tmp_path, "torchtune", SCRIPT)
    assert [record.event for record in (start, one, two, finish)] == ["start", "step", "step", "finish"]
    assert [(r.step, r.tokens, r.loss) for r in (one, two)] == [(20, 8000.0, 4.0), (40, 16000.0, 2.0)]
    assert json.loads((tmp_path / "done.json").read_text())["step"] == 40


def test_only_the_rank_that_prints_the_steps_reports(tmp_path):
    assert observe(tmp_path, "torchtune", SCRIPT, RANK="1", WORLD_SIZE="2") == []


def test_a_script_that_calls_the_agent_reports_once(tmp_path):
    own = "import rightsizer_launch.agent as agent\nagent.start()\nagent.step(tokens=5.0)\nagent.finish()\n"
    records = observe(tmp_path, "torchtune", SCRIPT + own)
    assert [(r.event, r.step) for r in records][-3:] == [("start", 0), ("step", 1), ("finish", 1)]
    assert [r.event for r in observe(tmp_path, "torchtune", own + SCRIPT)][-3:] == ["start", "step", "finish"]
